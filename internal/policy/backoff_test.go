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

func usual() Backoff { return Backoff{Base: 5 * time.Second, Cap: 15 * time.Minute} }

func failed(r ledger.Result, retryAfter time.Duration) ledger.Outcome {
	return ledger.Outcome{Result: r, RetryAfter: retryAfter}
}

// draws are what a random source may give: its ends and what lies between.
func draws() []float64 {
	all := []float64{0, math.SmallestNonzeroFloat64, math.Nextafter(1, 0)}
	for i := range 50 {
		all = append(all, float64(i)/50)
	}
	return all
}

func TestNoWaitLeavesItsBoundsWhateverIsSpentOrDemanded(t *testing.T) {
	backoffs := []Backoff{usual(), {Base: 10 * time.Millisecond, Cap: 2 * time.Second}, {Base: 24 * time.Hour, Cap: 7 * 24 * time.Hour}, {Base: time.Second, Cap: century}}
	for _, b := range backoffs {
		for spent := 1; spent <= 10_000; spent++ {
			if spent > 70 && spent%97 != 0 && spent != 10_000 {
				continue // every power of two up to the cap, then a sample
			}
			for _, demanded := range []time.Duration{0, 1, time.Second, 30 * time.Second, decade, math.MaxInt64, -time.Hour, math.MinInt64} {
				for _, draw := range draws() {
					got := Wait(failed(ledger.ResultThrottled, demanded), spent, b, draw)
					if got < time.Second || got > b.Cap {
						t.Fatalf("%+v, %d spent, retry after %v, draw %v: waits %v", b, spent, demanded, draw, got)
					}
				}
			}
		}
	}
}

func TestABackoffDoublesUpToItsCap(t *testing.T) {
	top := math.Nextafter(1, 0)
	for spent, want := range map[int]time.Duration{
		0: 5 * time.Second, 1: 5 * time.Second, 2: 10 * time.Second, 3: 20 * time.Second, 8: 640 * time.Second,
		9: 15 * time.Minute, 64: 15 * time.Minute, 10_000: 15 * time.Minute, math.MaxInt: 15 * time.Minute,
	} {
		if got := Wait(failed(ledger.ResultUnreachable, 0), spent, usual(), top).Round(time.Microsecond); got != want {
			t.Errorf("%d spent: at most %v, want %v", spent, got, want)
		}
	}
}

func TestJitterSpreadsEveryBackoffByAFifthOrMore(t *testing.T) {
	for _, demanded := range []time.Duration{0, 1, 3 * time.Second, 4200 * time.Millisecond, 5 * time.Second, 30 * time.Second, 14 * time.Minute, decade} {
		for spent := 1; spent <= 20; spent++ {
			low, high := time.Duration(math.MaxInt64), time.Duration(0)
			distinct := map[time.Duration]bool{}
			for i := range 1000 {
				got := Wait(failed(ledger.ResultThrottled, demanded), spent, usual(), float64(i)/1000)
				low, high = min(low, got), max(high, got)
				distinct[got] = true
			}
			if spread := float64(high-low) / float64(low); spread < 0.199 || len(distinct) < 100 {
				t.Errorf("retry after %v, %d spent: %v to %v, %d distinct", demanded, spent, low, high, len(distinct))
			}
		}
	}
}

func TestWhatAProviderDemandsIsAMinimum(t *testing.T) {
	for _, demanded := range []time.Duration{time.Second, 30 * time.Second, 10 * time.Minute, 12*time.Minute + 30*time.Second} {
		for _, draw := range draws() {
			if got := Wait(failed(ledger.ResultThrottled, demanded), 1, usual(), draw); got < demanded {
				t.Errorf("told to wait %v, waits %v", demanded, got)
			}
		}
	}
	low, high := Wait(failed(ledger.ResultThrottled, 30*time.Second), 1, usual(), 0), Wait(failed(ledger.ResultThrottled, 30*time.Second), 1, usual(), 0.999)
	if low != 30*time.Second || high > 36*time.Second {
		t.Errorf("told to wait 30 s, waits %v to %v", low, high)
	}
	if got := Wait(failed(ledger.ResultThrottled, time.Second), 4, usual(), 0); got < 24*time.Second {
		t.Errorf("a small demand shortened the backoff to %v", got)
	}
}

func TestAnAttemptThatNeverBeganIsRepeatedSoon(t *testing.T) {
	for _, spent := range []int{0, 1, 1000} {
		if got := Wait(failed(ledger.ResultNotCalled, decade), spent, usual(), 0.5); got < time.Second || got > 1200*time.Millisecond {
			t.Errorf("%d spent: %v", spent, got)
		}
	}
}

func TestAPauseWithoutAnAttemptIsTheFirstBackoff(t *testing.T) {
	low, high := Pause(usual(), 0, 0), Pause(usual(), 0, math.Nextafter(1, 0))
	if low != 3*time.Second || high < 4900*time.Millisecond || high > 5*time.Second {
		t.Errorf("%v to %v", low, high)
	}
	for _, b := range []Backoff{{}, {Base: time.Millisecond, Cap: time.Millisecond}, {Base: -time.Hour, Cap: time.Hour}} {
		if got := Pause(b, 0, 0.5); got < time.Second || got > 1200*time.Millisecond {
			t.Errorf("%+v: %v: never at once", b, got)
		}
	}
}
