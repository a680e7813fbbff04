package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
)

// slack is the accepted difference between two readings of a store's clock.
const slack = 10 * time.Second

// someTime is a time with microseconds in a zone other than UTC.
func someTime() time.Time {
	return time.Date(2031, 2, 28, 23, 59, 59, 123456000, time.FixedZone("Kathmandu", 5*3600+45*60))
}

// hostile lists strings that break careless stores.
func hostile() []string {
	return []string{
		`'; DROP TABLE entries; --`, `"double" 'single' ` + "`back`", `100%_of\\it`, "zażółć 🦊👩‍👩‍👧 \u202eright to left",
		"line\nbreak\ttab\r\n", strings.Repeat("x", 255), strings.Repeat("字", 85), " led and trailed ", "NULL", "$1 ?1 :a @b",
		"\u0001\u007f", "A", "a",
	}
}

func identity(n int) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("r-%04d", n), Type: "seat_expiring", Channel: "email"}
}

// base has the fields that every entry of the suite has.
func base(id ledger.Identity) ledger.Entry {
	return ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: strings.Repeat("c", 64),
		Provider: "mailer", Source: "orders", Published: someTime(),
	}
}

func sending(id ledger.Identity) ledger.Entry {
	e := base(id)
	e.State, e.Reason = ledger.Sending, ledger.ReasonClaimed
	e.Holder, e.LeaseUntil, e.ClaimedAt = "holder-1", ledger.In(time.Minute), ledger.In(0)
	e.Fingerprint, e.Owner = "f1", ledger.OwnerBroker
	return e
}

func waiting(id ledger.Identity, wake time.Duration) ledger.Entry {
	e := base(id)
	e.State, e.Reason, e.Owner = ledger.Waiting, ledger.ReasonScheduled, ledger.OwnerLedger
	e.Due, e.Wake = ledger.In(wake), ledger.In(wake)
	return e
}

func unknown(id ledger.Identity) ledger.Entry {
	e := base(id)
	e.State, e.Reason, e.Class = ledger.Unknown, ledger.ReasonUnanswered, ledger.ClassUnknown
	e.DoubtSince = someTime()
	return e
}

func sent(id ledger.Identity) ledger.Entry {
	e := base(id)
	e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "receipt-1"
	return e
}

func dead(id ledger.Identity, class ledger.Class) ledger.Entry {
	e := base(id)
	e.State, e.Reason, e.Class = ledger.Dead, ledger.ReasonRefused, class
	return e
}

func dropped(id ledger.Identity) ledger.Entry {
	e := base(id)
	e.State, e.Reason = ledger.Dropped, ledger.ReasonExpired
	return e
}

// settled is e after the call of its holder was accepted.
func settled(e ledger.Entry) ledger.Entry {
	e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "receipt-1"
	e.Holder, e.LeaseUntil = "", ledger.Moment{}
	e.Attempts, e.BudgetUsed = e.Attempts+1, e.BudgetUsed+1
	return e
}

func attempt(number int) *ledger.TimelineEvent {
	return &ledger.TimelineEvent{
		Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted,
		Origin: ledger.OriginPush, Source: "orders", MessageID: "m-1", DeliveryCount: 3, Holder: "holder-1",
		AttemptNumber: number, Provider: "mailer", Started: someTime(), Finished: someTime().Add(1234567 * time.Microsecond),
		Outcome: ledger.Outcome{
			Result: ledger.ResultAccepted, Receipt: "receipt-1", Status: 202, Code: "queued",
			RequestID: "req-1", RetryAfter: 1500 * time.Millisecond, Cause: "status",
		},
	}
}

func decided(reason ledger.Reason) *ledger.TimelineEvent {
	return &ledger.TimelineEvent{
		Kind: ledger.EventDecision, State: ledger.Waiting, Reason: reason, Origin: ledger.OriginAPI, Source: "checkout",
	}
}

func mustInsert(t *testing.T, s Store, e ledger.Entry) ledger.Entry {
	t.Helper()
	stored, err := s.Insert(context.Background(), ledger.Change{Entry: e})
	if err != nil {
		t.Fatalf("Insert %v: %v", e.Identity, err)
	}
	return stored
}

func mustUpdate(t *testing.T, s Store, e ledger.Entry, event *ledger.TimelineEvent) ledger.Entry {
	t.Helper()
	stored, err := s.Update(context.Background(), ledger.Change{Entry: e, Event: event})
	if err != nil {
		t.Fatalf("Update %v at %d: %v", e.Identity, e.Version, err)
	}
	return stored
}

func mustLoad(t *testing.T, s Store, id ledger.Identity) ledger.Entry {
	t.Helper()
	seen, err := s.Load(context.Background(), id)
	if err != nil {
		t.Fatalf("Load %v: %v", id, err)
	}
	if seen.Now.IsZero() || seen.Now.Location() != time.UTC {
		t.Fatalf("Load %v: the ledger's now is %v", id, seen.Now)
	}
	return seen.Entry
}

// same compares by value; moments by their fixed time and span.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	moments := cmp.Comparer(func(a, b ledger.Moment) bool {
		at, fixed := a.Fixed()
		other, alsoFixed := b.Fixed()
		span, spans := a.Span()
		otherSpan, alsoSpans := b.Span()
		return at.Equal(other) && fixed == alsoFixed && span == otherSpan && spans == alsoSpans
	})
	if diff := cmp.Diff(want, got, moments); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// asStored is e as the store must return it: its moments are taken from got after they were checked, and its times
// are truncated to microseconds in UTC.
func asStored(t *testing.T, e, got ledger.Entry) ledger.Entry {
	t.Helper()
	pairs := []struct {
		name    string
		written *ledger.Moment
		fixed   ledger.Moment
	}{
		{"LeaseUntil", &e.LeaseUntil, got.LeaseUntil},
		{"ClaimedAt", &e.ClaimedAt, got.ClaimedAt},
		{"Due", &e.Due, got.Due},
		{"Wake", &e.Wake, got.Wake},
		{"NextLookup", &e.NextLookup, got.NextLookup},
	}
	for _, p := range pairs {
		if p.written.IsZero() {
			continue
		}
		at, fixed := p.fixed.Fixed()
		want := p.written.On(got.Updated)
		if _, spans := p.written.Span(); !fixed || spans && at.Sub(want).Abs() > slack || !spans && !at.Equal(want) {
			t.Errorf("%s: stored %v, want %v", p.name, at, want)
		}
		*p.written = p.fixed
	}
	e.NotBefore, e.Deadline = stamp(e.NotBefore), stamp(e.Deadline)
	e.DoubtSince, e.Published = stamp(e.DoubtSince), stamp(e.Published)
	e.Version++
	e.FirstSeen, e.Updated = got.FirstSeen, got.Updated
	return e
}

func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return micros(t)
}
