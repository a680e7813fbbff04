package policy_test

import (
	"math"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	. "github.com/sendonce/sendonce/internal/policy"
)

const (
	century = 100 * 365 * 24 * time.Hour
	decade  = 10 * 365 * 24 * time.Hour
)

func defaultBackoff() Backoff { return Backoff{Base: 5 * time.Second, Cap: 15 * time.Minute} }

func failed(r ledger.Result, retryAfter time.Duration) ledger.Outcome {
	return ledger.Outcome{Result: r, RetryAfter: retryAfter}
}

// randoms returns values that a random source may give: the ends of its range, and values between them.
func randoms() []float64 {
	all := []float64{0, math.SmallestNonzeroFloat64, math.Nextafter(1, 0)}
	for i := range 50 {
		all = append(all, float64(i)/50)
	}
	return all
}

func TestWait_StaysWithinItsBounds(t *testing.T) {
	backoffs := []Backoff{defaultBackoff(), {Base: 10 * time.Millisecond, Cap: 2 * time.Second}, {Base: 24 * time.Hour, Cap: 7 * 24 * time.Hour}, {Base: time.Second, Cap: century}}
	for _, b := range backoffs {
		for used := 1; used <= 10_000; used++ {
			if used > 70 && used%97 != 0 && used != 10_000 {
				continue // every power of two up to the cap, then a sample
			}
			for _, retryAfter := range []time.Duration{0, 1, time.Second, 30 * time.Second, decade, math.MaxInt64, -time.Hour, math.MinInt64} {
				for _, random := range randoms() {
					got := Wait(failed(ledger.ResultThrottled, retryAfter), used, b, random)
					if got < time.Second || got > b.Cap {
						t.Fatalf("%+v, %d attempts, retry after %v, random %v: waits %v", b, used, retryAfter, random, got)
					}
				}
			}
		}
	}
}

func TestWait_DoublesUpToTheCap(t *testing.T) {
	top := math.Nextafter(1, 0)
	for used, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 8: 640 * time.Second,
		9: 15 * time.Minute, 64: 15 * time.Minute, 10_000: 15 * time.Minute, math.MaxInt: 15 * time.Minute,
	} {
		if got := Wait(failed(ledger.ResultUnreachable, 0), used, defaultBackoff(), top).Round(time.Microsecond); got != want {
			t.Errorf("%d attempts: at most %v, want %v", used, got, want)
		}
	}
}

func TestWait_JitterSpreadsByAFifthOrMore(t *testing.T) {
	for _, retryAfter := range []time.Duration{0, 1, 3 * time.Second, 4200 * time.Millisecond, 5 * time.Second, 30 * time.Second, 14 * time.Minute, decade} {
		for used := 1; used <= 20; used++ {
			low, high := time.Duration(math.MaxInt64), time.Duration(0)
			distinct := map[time.Duration]bool{}
			for i := range 1000 {
				got := Wait(failed(ledger.ResultThrottled, retryAfter), used, defaultBackoff(), float64(i)/1000)
				low, high = min(low, got), max(high, got)
				distinct[got] = true
			}
			if spread := float64(high-low) / float64(low); spread < 0.199 || len(distinct) < 100 {
				t.Errorf("retry after %v, %d attempts: %v to %v, %d distinct", retryAfter, used, low, high, len(distinct))
			}
		}
	}
}

func TestWait_RetryAfterIsAMinimum(t *testing.T) {
	for _, retryAfter := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute, 12*time.Minute + 30*time.Second} {
		for _, random := range randoms() {
			if got := Wait(failed(ledger.ResultThrottled, retryAfter), 1, defaultBackoff(), random); got < retryAfter {
				t.Errorf("retry after %v, waits %v", retryAfter, got)
			}
		}
	}
	low, high := Wait(failed(ledger.ResultThrottled, 30*time.Second), 1, defaultBackoff(), 0), Wait(failed(ledger.ResultThrottled, 30*time.Second), 1, defaultBackoff(), 0.999)
	if low != 30*time.Second || high > 36*time.Second {
		t.Errorf("retry after 30 s, waits %v to %v", low, high)
	}
	if got := Wait(failed(ledger.ResultThrottled, time.Second), 4, defaultBackoff(), 0); got < 24*time.Second {
		t.Errorf("a short Retry-After shortened the backoff to %v", got)
	}
}

func TestWait_NotCalledIsRetriedSoon(t *testing.T) {
	for _, used := range []int{0, 1, 1000} {
		if got := Wait(failed(ledger.ResultNotCalled, decade), used, defaultBackoff(), 0.5); got < time.Second || got > 1200*time.Millisecond {
			t.Errorf("%d attempts: %v", used, got)
		}
	}
}

func TestUncalledWait_IsTheFirstBackoff(t *testing.T) {
	low, high := UncalledWait(defaultBackoff(), 0, 0), UncalledWait(defaultBackoff(), 0, math.Nextafter(1, 0))
	if low != 3*time.Second || high < 4900*time.Millisecond || high > 5*time.Second {
		t.Errorf("%v to %v", low, high)
	}
	for _, b := range []Backoff{{}, {Base: time.Millisecond, Cap: time.Millisecond}, {Base: -time.Hour, Cap: time.Hour}} {
		if got := UncalledWait(b, 0, 0.5); got < time.Second || got > 1200*time.Millisecond {
			t.Errorf("%+v: %v, want at least 1 s", b, got)
		}
	}
}

// The minimum of 1 s must not remove the jitter if the backoff is 1 s or less, as in the `dev` configuration: many
// retries would coincide again.
func TestWait_MinimumKeepsTheJitter(t *testing.T) {
	b := Backoff{Base: time.Second, Cap: 10 * time.Second}
	distinct := map[time.Duration]bool{}
	for i := range 1000 {
		distinct[Wait(ledger.Outcome{Result: ledger.ResultUnreachable}, 1, b, float64(i)/1000)] = true
	}
	if len(distinct) < 100 {
		t.Errorf("%d distinct waits of 1,000", len(distinct))
	}
}

// The configuration limits the cap to 7 days; the doubling must not depend on that.
func TestWait_DoublingDoesNotOverflow(t *testing.T) {
	b := Backoff{Base: time.Hour, Cap: math.MaxInt64}
	if got := Wait(ledger.Outcome{Result: ledger.ResultUnreachable}, 100, b, 0.5); got <= time.Second {
		t.Errorf("waits %v", got)
	}
}
