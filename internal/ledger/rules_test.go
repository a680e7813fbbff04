package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestCallBudget_IsTheEarliestOfItsBounds(t *testing.T) {
	held := func(changes ...func(*Entry)) Entry {
		return entry(Sending, append([]func(*Entry){func(e *Entry) { e.LeaseUntil = At(noon().Add(lease)) }}, changes...)...)
	}
	leaseLeft := func(d time.Duration) func(*Entry) {
		return func(e *Entry) { e.LeaseUntil = At(noon().Add(d)) }
	}
	for name, row := range map[string]struct {
		entry   Entry
		timeout time.Duration
		want    time.Duration
	}{
		"timeout":                 {held(), 10 * time.Second, 10 * time.Second},
		"lease less margin":       {held(), time.Hour, lease - margin},
		"part of a lease left":    {held(leaseLeft(10 * time.Second)), time.Hour, 10*time.Second - margin},
		"a clock that jumped":     {held(leaseLeft(time.Hour)), time.Hour, lease - margin},
		"a lease that has ended":  {held(leaseLeft(0)), time.Hour, -margin},
		"deadline":                {held(deadlineIn(7 * time.Second)), 10 * time.Second, 7 * time.Second},
		"deadline now":            {held(deadlineIn(0)), 10 * time.Second, 0},
		"deadline passed":         {held(deadlineIn(-time.Second)), 10 * time.Second, -time.Second},
		"no deadline":             {held(func(e *Entry) { e.Deadline = time.Time{} }), 10 * time.Second, 10 * time.Second},
		"the window's end":        {held(markDoubt(window - margin - 4*time.Second)), 10 * time.Second, 4 * time.Second},
		"the window ended":        {held(markDoubt(window)), 10 * time.Second, -margin},
		"no time at all":          {held(), 0, 0},
		"no doubt, so no window":  {held(), 10 * time.Second, 10 * time.Second},
		"a timeout without bound": {held(), math.MaxInt64, lease - margin},
	} {
		if got := CallBudget(row.entry, row.timeout, rules(ContractIdempotent), noon()); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	if got := CallBudget(held(markDoubt(time.Minute)), time.Second, rules(ContractIdempotent, boundGone), noon()); got > 0 {
		t.Errorf("in doubt, and the provider is gone: %v to dial", got)
	}
}
