package ledger_test

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

// A call that began before the closing and is throttled must not cut it to its own few seconds, nor forget
// the strikes: all would call at once.
func TestAThrottledStragglerDoesNotShortenAClosing(t *testing.T) {
	g, _ := gate(ClassCredentials, 3, 8*time.Minute).After(ResultThrottled, 5*time.Second, 0, false, gateRules(), noon())
	if closedFor(g) < 8*time.Minute || g.Strikes != 3 {
		t.Errorf("closed for %v, %d strikes", closedFor(g), g.Strikes)
	}
}

// A call that was in flight when a person closed the gate says nothing about why they did.
func TestNoCallOpensWhatAPersonClosed(t *testing.T) {
	paused := Gate{Provider: "mail", Paused: true, By: "ada", Strikes: 1, Version: 4}
	for _, r := range Results() {
		for _, probe := range []bool{false, true} {
			if g, news := paused.After(r, time.Second, 9, probe, gateRules(), noon()); news || g != paused || g.View(noon()).Open {
				t.Errorf("%s, probe %t: %+v", r, probe, g)
			}
		}
	}
}

// The budget is looked at before a claim too, since the settle before it may not have known it: the
// provider was gone, or the budget was larger.
func TestASpentBudgetIsNotClaimedAgain(t *testing.T) {
	e := Settle(entry(Sending, spent(attempts-1)), attempt(ResultUnknown, time.Second), rules(Blind, boundGone), noon()).Entry
	e = stored(Change{Entry: e}, noon())
	step := Meet(e, visit(OriginPush), ready(), rules(Idempotent), e.Due.On(noon())) // the provider is back
	if step.Change.Entry.State == Sending {
		t.Errorf("call %d of %d, in doubt", e.Spent+1, attempts)
	}
	for _, n := range []int{attempts, attempts + 3} { // the budget was cut by a new configuration
		if step := Meet(entry(Waiting, spent(n)), visit(OriginPush), ready(), rules(Blind), noon()); step.Change.Entry.State == Sending {
			t.Errorf("call %d of %d", n+1, attempts)
		}
	}
}

// Failover needs a proven non-acceptance; a risk that was taken is no proof.
func TestARiskIsTakenAtTheSameProvider(t *testing.T) {
	e := stored(Settle(entry(Sending), attempt(ResultUnknown, time.Second), rules(Blind, onUnknown(Resend)), noon()), noon())
	other := rules(Blind, onUnknown(Resend), func(r *Rules) { r.Channel = Route{Provider: "second", Fingerprint: "second/1"} })
	f := ready()
	f.Slot.Provider = "second"
	if step := Meet(e, visit(OriginPush), f, other, e.Due.On(noon())); step.Change.Entry.Provider == "second" {
		t.Errorf("from %s to second after an unknown call; told as %q, which says 'proven unsent'", e.Provider, step.Change.Event.Reason)
	}
}

// Only another attempt makes a second send. What a person resolved as sent is the same one, and its late
// proof must raise no alarm.
func TestProofOfWhatAPersonResolvedIsNoAlarm(t *testing.T) {
	e := entry(Sent, func(e *Entry) { e.Receipt, e.Missing = "", MissingResolved })
	if change := Late(e, attempt(ResultAccepted, 0)); change.Event.Reason != ReasonLateAcceptance {
		t.Errorf("told as %q", change.Event.Reason)
	}
}

// Go's base64 skips CR and LF even when strict; and bytes that are not UTF-8 would reach PostgreSQL, whose
// error would be told as a 503 where a 404 is due.
func TestParseEntryIDReadsOnlyWhatWasWritten(t *testing.T) {
	word := identity().EntryID()
	for _, w := range []string{word + "\n", word[:4] + "\r\n" + word[4:], base64.RawURLEncoding.EncodeToString([]byte("a\xff\x00b\x00c"))} {
		if _, ok := ParseEntryID(w); ok {
			t.Errorf("%q is read", w)
		}
	}
}

// The floor of 1 s must not swallow the jitter where the backoff is 1 s or less, as `dev` has it: a wave
// would come back as a wave.
func TestTheFloorKeepsTheJitter(t *testing.T) {
	b := policy.Backoff{Base: time.Second, Cap: 10 * time.Second}
	distinct := map[time.Duration]bool{}
	for i := range 1000 {
		distinct[policy.Wait(Outcome{Result: ResultUnreachable}, 1, b, float64(i)/1000)] = true
	}
	if len(distinct) < 100 {
		t.Errorf("%d distinct waits of 1,000", len(distinct))
	}
}

// A hostile not_before in the last hours of the year 9999 must not give a deadline in the year 10000: the
// dead letter that it becomes could not be written as JSON, and would break every list that holds it.
func TestADeadlineStaysWithinWhatJSONCanHold(t *testing.T) {
	r := reminder.Reminder{ReminderID: "x", Type: "t", Channel: "c", Content: []byte(`{"a":"b"}`), NotBefore: time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)}
	e := policy.Birth(r, policy.Arrival{}, policy.Type{Deadline: 24 * time.Hour}, noon())
	if _, err := json.Marshal(e.Deadline); err != nil {
		t.Error(err)
	}
}

// A gate's wait is only a bound: while one delivery probes it is a whole lease, and mostly over in a second.
// So a newcomer whose deadline it outlasts waits all the same.
func TestAProbeInFlightDropsNoNewcomers(t *testing.T) {
	v := visit(OriginPush)
	v.Birth.Deadline = noon().Add(lease - time.Second)
	f := ready()
	f.Slot = Slot{Provider: "mail", Reason: ReasonGateClosed, Wait: lease}
	if e := Meet(Entry{}, v, f, rules(Blind), noon()).Change.Entry; e.State != Waiting {
		t.Errorf("29 s before its deadline, one probe in flight: %s, %s", e.State, e.Reason)
	}
}

func TestCheckRefusesAStateThatDoesNotExist(t *testing.T) {
	e := entry(Dropped)
	e.State = "dorpped"
	if e.Check() == nil {
		t.Error("nothing found")
	}
}

// The configuration keeps the cap at 7 d or less; the doubling must not lean on that.
func TestDoublingDoesNotOverflowAtAnEndlessCap(t *testing.T) {
	b := policy.Backoff{Base: time.Hour, Cap: math.MaxInt64}
	if got := policy.Wait(Outcome{Result: ResultUnreachable}, 100, b, 0.5); got <= time.Second {
		t.Errorf("waits %v", got)
	}
}

// Every delivery that writes is counted, be it a takeover, a rest, a drop or a lapse that it writes.
func TestDeliveriesThatWriteAreCounted(t *testing.T) {
	e := entry(Waiting, func(e *Entry) { e.Deliveries = 1 })
	f := ready()
	f.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
	if got := Meet(e, visit(OriginPush), f, rules(Blind), noon()).Change.Entry; got.Deliveries != 2 {
		t.Errorf("dropped at its second delivery, and counts %d", got.Deliveries)
	}
}
