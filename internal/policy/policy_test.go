package policy_test

import (
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	. "github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return noon().Add(-d) }

func ahead(d time.Duration) time.Time { return noon().Add(d) }

func seat(changes ...func(*reminder.Reminder)) reminder.Reminder {
	r := reminder.Reminder{
		ReminderID: "rem-1842", ReservationID: "seat-1842", Type: "seat_expiring", Channel: "email", UserID: "u-77",
		To: "ada@example.org", Content: []byte(`{"text":"held"}`), CorrelationID: "req-5f",
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func created(at time.Time) func(*reminder.Reminder) {
	return func(r *reminder.Reminder) { r.CreatedAt = at }
}

func notBefore(at time.Time) func(*reminder.Reminder) {
	return func(r *reminder.Reminder) { r.NotBefore = at }
}

func until(at time.Time) func(*reminder.Reminder) {
	return func(r *reminder.Reminder) { r.Deadline = at }
}

func TestTheAgeOfAReminderAndItsDeadline(t *testing.T) {
	kind := Type{Deadline: time.Hour}
	for name, row := range map[string]struct {
		reminder            reminder.Reminder
		published           time.Time
		wantAge, wantExpiry time.Time
	}{
		"nothing said: arrival":             {seat(), time.Time{}, noon(), ahead(time.Hour)},
		"the broker says":                   {seat(), ago(time.Minute), ago(time.Minute), ahead(59 * time.Minute)},
		"created_at before the broker":      {seat(created(ago(2 * time.Minute))), ago(time.Minute), ago(2 * time.Minute), ahead(58 * time.Minute)},
		"created_at after the broker":       {seat(created(ago(time.Second))), ago(time.Minute), ago(time.Second), ahead(time.Hour - time.Second)},
		"created_at ahead of us":            {seat(created(ahead(time.Hour))), ago(time.Minute), noon(), ahead(time.Hour)},
		"the broker's clock is ahead of us": {seat(), ahead(time.Hour), noon(), ahead(time.Hour)},
		"very old":                          {seat(created(ago(decade))), noon(), ago(decade), ago(decade - time.Hour)},
		"scheduled":                         {seat(notBefore(ahead(3 * time.Hour))), time.Time{}, noon(), ahead(4 * time.Hour)},
		"its own deadline is earlier":       {seat(until(ahead(time.Minute))), time.Time{}, noon(), ahead(time.Minute)},
		"its own deadline is later":         {seat(until(ahead(2 * time.Hour))), time.Time{}, noon(), ahead(time.Hour)},
		"its own deadline has passed":       {seat(until(ago(time.Minute))), time.Time{}, noon(), ago(time.Minute)},
		"scheduled behind its own deadline": {seat(notBefore(ahead(3*time.Hour)), until(ahead(time.Hour))), time.Time{}, noon(), ahead(time.Hour)},
		"below the microsecond":             {seat(created(ago(time.Minute + 1))), time.Time{}, ago(time.Minute + time.Microsecond), ago(time.Minute + time.Microsecond).Add(time.Hour)},
	} {
		e := Birth(row.reminder, Arrival{Source: "reservations", Published: row.published}, kind, noon())
		if !e.Published.Equal(row.wantAge) || !e.Deadline.Equal(row.wantExpiry) {
			t.Errorf("%s: published %v, deadline %v", name, e.Published, e.Deadline)
		}
		if e.Published.Location() != time.UTC || e.Published.Nanosecond()%1000 != 0 || e.Deadline.Nanosecond()%1000 != 0 {
			t.Errorf("%s: not as the ledger keeps it: %v, %v", name, e.Published, e.Deadline)
		}
	}
}

func TestWhatIsBornIsTheReminderAndNothingElse(t *testing.T) {
	r := seat()
	e := Birth(r, Arrival{Source: "reservations"}, Type{Deadline: time.Hour}, noon())
	id := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
	want := ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: r.ContentHash(), Source: "reservations",
		Published: noon(), Deadline: ahead(time.Hour),
		CorrelationID: "req-5f", ReservationID: "seat-1842", UserID: "u-77",
	}
	if e != want {
		t.Errorf("got %+v\nwant %+v", e, want)
	}
}

func TestWhatMayBeSentNow(t *testing.T) {
	memory := Memory{Span: 400 * 24 * time.Hour}
	cutOver := Memory{Span: memory.Span, AcceptSince: ago(time.Hour)}
	newcomer := func(published, deadline time.Time) ledger.Entry {
		return ledger.Entry{Published: published, Deadline: deadline}
	}
	known := func(published, deadline time.Time) ledger.Entry {
		return ledger.Entry{Version: 3, Published: published, Deadline: deadline}
	}
	tooOld, later := ago(memory.Span+time.Microsecond), ahead(time.Hour)
	admitted := ledger.Admission{}
	forgotten := ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonBeforeMemory}
	beforeUs := ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonBeforeCutOff}
	tooFar := ledger.Admission{Refusal: ledger.Dead, Class: ledger.ClassPermanent, Reason: ledger.ReasonTooFarAhead}
	expired := ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonExpired}

	for name, row := range map[string]struct {
		entry     ledger.Entry
		notBefore time.Time
		memory    Memory
		want      ledger.Admission
	}{
		"a newcomer in time":                       {newcomer(ago(time.Minute), later), time.Time{}, memory, admitted},
		"no deadline":                              {newcomer(noon(), time.Time{}), time.Time{}, memory, admitted},
		"a microsecond of time left":               {newcomer(noon(), ahead(time.Microsecond)), time.Time{}, memory, admitted},
		"the deadline is now":                      {newcomer(noon(), noon()), time.Time{}, memory, expired},
		"the deadline has passed":                  {newcomer(noon(), ago(time.Second)), time.Time{}, memory, expired},
		"known, and the deadline has passed":       {known(noon(), ago(time.Second)), time.Time{}, memory, expired},
		"known, and the deadline is now":           {known(noon(), noon()), time.Time{}, memory, expired},
		"older than the memory":                    {newcomer(tooOld, later), time.Time{}, memory, forgotten},
		"as old as the memory":                     {newcomer(ago(memory.Span), later), time.Time{}, memory, admitted},
		"older than the memory, and expired":       {newcomer(tooOld, ago(time.Hour)), time.Time{}, memory, forgotten},
		"known, however old: it is remembered":     {known(tooOld, later), time.Time{}, memory, admitted},
		"published before the cut-over":            {newcomer(ago(2*time.Hour), later), time.Time{}, cutOver, beforeUs},
		"published at the cut-over":                {newcomer(ago(time.Hour), later), time.Time{}, cutOver, admitted},
		"known from before the cut-over":           {known(ago(2*time.Hour), later), time.Time{}, cutOver, admitted},
		"scheduled":                                {newcomer(noon(), ahead(memory.Span)), ahead(memory.Span - time.Second), memory, admitted},
		"scheduled as far ahead as we remember":    {newcomer(noon(), ahead(2*memory.Span)), ahead(memory.Span), memory, admitted},
		"scheduled further ahead than we remember": {newcomer(noon(), ahead(2*memory.Span)), ahead(memory.Span + time.Second), memory, tooFar},
		"known, and its redelivery is far ahead":   {known(noon(), later), ahead(2 * memory.Span), memory, admitted},
	} {
		if got := Admit(row.entry, row.notBefore, row.memory, noon()); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}
