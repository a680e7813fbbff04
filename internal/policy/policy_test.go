package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	. "github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) time.Time { return noon().Add(-d) }

func ahead(d time.Duration) time.Time { return noon().Add(d) }

func newReminder(changes ...func(*reminder.Reminder)) reminder.Reminder {
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

func TestNewEntry_AgeAndDeadline(t *testing.T) {
	kind := Type{Deadline: time.Hour}
	for name, row := range map[string]struct {
		reminder                    reminder.Reminder
		published                   time.Time
		wantPublished, wantDeadline time.Time
	}{
		"no times: arrival":                {newReminder(), time.Time{}, noon(), ahead(time.Hour)},
		"published by the broker":          {newReminder(), ago(time.Minute), ago(time.Minute), ahead(59 * time.Minute)},
		"created_at before the broker":     {newReminder(created(ago(2 * time.Minute))), ago(time.Minute), ago(2 * time.Minute), ahead(58 * time.Minute)},
		"created_at after the broker":      {newReminder(created(ago(time.Second))), ago(time.Minute), ago(time.Second), ahead(time.Hour - time.Second)},
		"created_at in the future":         {newReminder(created(ahead(time.Hour))), ago(time.Minute), noon(), ahead(time.Hour)},
		"the broker's clock is ahead":      {newReminder(), ahead(time.Hour), noon(), ahead(time.Hour)},
		"very old":                         {newReminder(created(ago(decade))), noon(), ago(decade), ago(decade - time.Hour)},
		"scheduled":                        {newReminder(notBefore(ahead(3 * time.Hour))), time.Time{}, noon(), ahead(4 * time.Hour)},
		"its own deadline is earlier":      {newReminder(until(ahead(time.Minute))), time.Time{}, noon(), ahead(time.Minute)},
		"its own deadline is later":        {newReminder(until(ahead(2 * time.Hour))), time.Time{}, noon(), ahead(time.Hour)},
		"its own deadline has passed":      {newReminder(until(ago(time.Minute))), time.Time{}, noon(), ago(time.Minute)},
		"scheduled after its own deadline": {newReminder(notBefore(ahead(3*time.Hour)), until(ahead(time.Hour))), time.Time{}, noon(), ahead(time.Hour)},
		"below the microsecond":            {newReminder(created(ago(time.Minute + 1))), time.Time{}, ago(time.Minute + time.Microsecond), ago(time.Minute + time.Microsecond).Add(time.Hour)},
	} {
		e := NewEntry(row.reminder, Arrival{Source: "reservations", Published: row.published}, kind, noon())
		if !e.Published.Equal(row.wantPublished) || !e.Deadline.Equal(row.wantDeadline) {
			t.Errorf("%s: published %v, deadline %v", name, e.Published, e.Deadline)
		}
		if e.Published.Location() != time.UTC || e.Published.Nanosecond()%1000 != 0 || e.Deadline.Nanosecond()%1000 != 0 {
			t.Errorf("%s: not UTC in microseconds: %v, %v", name, e.Published, e.Deadline)
		}
	}
}

func TestNewEntry_HoldsTheReminderAndNothingElse(t *testing.T) {
	r := newReminder()
	e := NewEntry(r, Arrival{Source: "reservations"}, Type{Deadline: time.Hour}, noon())
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

func TestAdmit(t *testing.T) {
	memory := Memory{Span: 400 * 24 * time.Hour}
	cutOver := Memory{Span: memory.Span, AcceptSince: ago(time.Hour)}
	raised := Memory{Span: memory.Span, LowWater: ago(40 * 24 * time.Hour)} // it was shorter when entries were deleted
	deletedSinceCutOver := Memory{Span: memory.Span, AcceptSince: ago(time.Hour), LowWater: ago(time.Minute)}
	added := func(published, deadline time.Time) ledger.Entry {
		return ledger.Entry{Published: published, Deadline: deadline}
	}
	existing := func(published, deadline time.Time) ledger.Entry {
		return ledger.Entry{Version: 3, Published: published, Deadline: deadline}
	}
	tooOld, later := ago(memory.Span+time.Microsecond), ahead(time.Hour)
	admitted := ledger.Admission{}
	beforeMemory := ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonBeforeMemory}
	beforeCutOff := ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonBeforeCutOff}
	tooFar := ledger.Admission{State: ledger.Dead, Class: ledger.ClassPermanent, Reason: ledger.ReasonTooFarAhead}
	expired := ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonExpired}

	for name, row := range map[string]struct {
		entry     ledger.Entry
		notBefore time.Time
		memory    Memory
		want      ledger.Admission
	}{
		"new, in time":                            {added(ago(time.Minute), later), time.Time{}, memory, admitted},
		"no deadline":                             {added(noon(), time.Time{}), time.Time{}, memory, admitted},
		"a microsecond of time left":              {added(noon(), ahead(time.Microsecond)), time.Time{}, memory, admitted},
		"the deadline is now":                     {added(noon(), noon()), time.Time{}, memory, expired},
		"the deadline has passed":                 {added(noon(), ago(time.Second)), time.Time{}, memory, expired},
		"existing, and the deadline has passed":   {existing(noon(), ago(time.Second)), time.Time{}, memory, expired},
		"existing, and the deadline is now":       {existing(noon(), noon()), time.Time{}, memory, expired},
		"older than the memory":                   {added(tooOld, later), time.Time{}, memory, beforeMemory},
		"as old as the memory":                    {added(ago(memory.Span), later), time.Time{}, memory, admitted},
		"older than the memory, and expired":      {added(tooOld, ago(time.Hour)), time.Time{}, memory, beforeMemory},
		"existing, older than the memory":         {existing(tooOld, later), time.Time{}, memory, admitted},
		"published at the low-water mark":         {added(raised.LowWater, later), time.Time{}, raised, beforeMemory},
		"published before the low-water mark":     {added(ago(50*24*time.Hour), later), time.Time{}, raised, beforeMemory},
		"published after the low-water mark":      {added(raised.LowWater.Add(time.Microsecond), later), time.Time{}, raised, admitted},
		"existing, before the low-water mark":     {existing(ago(50*24*time.Hour), later), time.Time{}, raised, admitted},
		"older than the memory, after the mark":   {added(tooOld, later), time.Time{}, Memory{Span: memory.Span, LowWater: tooOld.Add(-time.Hour)}, beforeMemory},
		"after the cut-over, before the mark":     {added(ago(time.Hour), later), time.Time{}, deletedSinceCutOver, beforeMemory},
		"before the low-water mark, and expired":  {added(ago(50*24*time.Hour), ago(time.Hour)), time.Time{}, raised, beforeMemory},
		"published before the cut-over":           {added(ago(2*time.Hour), later), time.Time{}, cutOver, beforeCutOff},
		"published at the cut-over":               {added(ago(time.Hour), later), time.Time{}, cutOver, admitted},
		"existing, published before the cut-over": {existing(ago(2*time.Hour), later), time.Time{}, cutOver, admitted},
		"scheduled":                                 {added(noon(), ahead(memory.Span)), ahead(memory.Span - time.Second), memory, admitted},
		"scheduled as far ahead as the memory":      {added(noon(), ahead(2*memory.Span)), ahead(memory.Span), memory, admitted},
		"scheduled further ahead than the memory":   {added(noon(), ahead(2*memory.Span)), ahead(memory.Span + time.Second), memory, tooFar},
		"existing, and its redelivery is far ahead": {existing(noon(), later), ahead(2 * memory.Span), memory, admitted},
	} {
		if got := Admit(row.entry, row.notBefore, row.memory, noon()); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// A hostile not_before in the last hours of the year 9999 must not give a deadline in the year 10000: its dead letter
// could not be encoded as JSON, and would break every list that contains it.
func TestNewEntry_DeadlineFitsIntoJSON(t *testing.T) {
	r := reminder.Reminder{ReminderID: "x", Type: "t", Channel: "c", Content: []byte(`{"a":"b"}`), NotBefore: time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)}
	e := NewEntry(r, Arrival{}, Type{Deadline: 24 * time.Hour}, noon())
	if _, err := json.Marshal(e.Deadline); err != nil {
		t.Error(err)
	}
}
