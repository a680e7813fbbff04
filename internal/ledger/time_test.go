package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestMoment_IsFixedOrASpanOrNever(t *testing.T) {
	now := noon().Add(1500 * time.Nanosecond).In(time.FixedZone("", 3600))
	if m := At(now); !m.On(noon()).Equal(noon().Add(time.Microsecond)) || m.On(noon()).Location() != time.UTC {
		t.Errorf("kept as %v", m.On(noon()))
	}
	if m := In(90 * time.Second); m.IsZero() || !m.On(now).Equal(noon().Add(90*time.Second+time.Microsecond)) {
		t.Errorf("a span of 90 s ends at %v", m.On(now))
	}
	if In(0).IsZero() || At(noon()).IsZero() {
		t.Error("now is not never")
	}
	var never Moment
	if !never.IsZero() || !never.On(noon()).IsZero() || At(time.Time{}) != never {
		t.Error("never is never")
	}
	_, fixed := In(time.Second).Fixed()
	_, span := At(noon()).Span()
	if fixed || span || In(-time.Second).On(noon()) != noon().Add(-time.Second) {
		t.Error("a moment is one of both")
	}
	if back, ok := At(noon()).Fixed(); !ok || !back.Equal(noon()) || In(999) != In(0) {
		t.Error("a store keeps whole microseconds")
	}
}
