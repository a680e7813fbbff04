package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// account is a provider's own memory: what it really carried on. A changed fingerprint is another account.
type account struct {
	w        *world
	route    ledger.Route
	luck     *dice
	lag      time.Duration // how long it does not know what it took, when it is asked
	mu       sync.Mutex
	accepted map[string]acceptance
}

type acceptance struct {
	at      time.Time
	receipt string
}

// take carries a shipment on, or knows it again where the contract says so: a key is judged by when its
// request came in.
func (a *account) take(s ledger.Shipment, came time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.accepted[s.SendKey]
	if ok && a.route.Contract.Kind == ledger.Idempotent && came.Sub(known.at) < a.route.Contract.Window {
		return known.receipt
	}
	n := a.w.sent(s.Identity, a.route.Fingerprint)
	got := acceptance{time.Now(), fmt.Sprintf("%s-%s-%d", a.route.Fingerprint, s.ReminderID, n)}
	a.accepted[s.SendKey] = got
	a.w.background.Go(func() { a.reports(s.Identity, got.receipt, n) })
	return got.receipt
}

// mood is what a provider does with one call.
type mood int

// Moods. Those before refuses take their time.
const (
	accepts mood = iota
	losesItsAnswer
	neverAnswers
	acceptsLater
	unreadable
	silent
	refuses
	gone
	throttles
	wrongPassword
	panics
	panicsPastTheWire
	hangsUp
	unreachable
	moods
)

func (m mood) fault() fault {
	return fault("a provider " + []string{
		"accepts", "accepts, and its answer is lost", "accepts, and never answers", "accepts after the call is over",
		"accepts, and its receipt cannot be read", "is silent, and took nothing", "refuses the content",
		"refuses the recipient", "throttles", "refuses our password", "panics before the wire", "panics past the wire",
		"hangs up, and took nothing", "cannot be reached",
	}[m])
}

// turn is what becomes of one call.
type turn struct {
	mood
	delay     time.Duration // before the provider does anything
	late      time.Duration // how long a reminder lies in its queue, or how long it wants to be left alone
	cancelled bool          // somebody cancels while the call is on the wire
}

// turn draws; while there is no trouble, every call is accepted.
func (w *world) turn(luck *dice, id ledger.Identity) (t turn) {
	if !w.trouble.Load() {
		return turn{}
	}
	total := 0
	for _, weight := range w.moods {
		total += weight
	}
	roll := luck.roll(total)
	for roll >= w.moods[t.mood] {
		roll -= w.moods[t.mood]
		t.mood++
	}
	w.fire(t.fault(), id.ReminderID)
	if t.mood < refuses {
		t.delay = luck.upTo([]time.Duration{2, 2_000, 27_000}[luck.roll(3)] * time.Millisecond)
	}
	t.late = luck.upTo(30 * time.Second)
	t.cancelled = luck.roll(8) == 0
	return t
}

// Route implements [provider.Provider].
func (a *account) Route() ledger.Route { return a.route }

// Send implements [provider.Provider].
func (a *account) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	luck, came := a.w.luckOf[s.Identity], time.Now()
	t := a.w.turn(luck, s.Identity)
	a.w.called(s, a.route)
	if t.cancelled {
		a.w.background.Go(func() { a.w.cancel(s.Identity, a.w.pick(luck)) })
	}
	if t.delay > 0 {
		select {
		case <-time.After(t.delay):
		case <-ctx.Done():
			return ledger.Outcome{Cause: "timeout"} // nothing was taken, but nobody knows
		}
	}
	switch t.mood {
	case accepts:
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: a.take(s, came)}
	case losesItsAnswer:
		a.take(s, came)
		return ledger.Outcome{Cause: "reset"}
	case neverAnswers:
		a.take(s, came)
		<-ctx.Done()
		return ledger.Outcome{Cause: "timeout"}
	case acceptsLater: // it lies in a queue of theirs past the deadline
		<-ctx.Done()
		a.w.background.Go(func() { time.Sleep(t.late); a.take(s, came) })
		return ledger.Outcome{Cause: "timeout"}
	case unreadable:
		a.take(s, came)
		return ledger.Outcome{Result: ledger.ResultAccepted}
	case silent:
		<-ctx.Done()
		return ledger.Outcome{Cause: "timeout"}
	case refuses:
		return ledger.Outcome{Result: ledger.ResultRefused}
	case gone:
		return ledger.Outcome{Result: ledger.ResultGone}
	case throttles:
		return ledger.Outcome{Result: ledger.ResultThrottled, RetryAfter: t.late}
	case wrongPassword:
		return ledger.Outcome{Result: ledger.ResultCredentials}
	case panics:
		panic("an adapter's own")
	case panicsPastTheWire:
		a.take(s, came)
		panic("an adapter's own, past the wire")
	case hangsUp:
		return ledger.Outcome{Cause: "eof"}
	default:
		return ledger.Outcome{Result: ledger.ResultUnreachable}
	}
}

// Ask implements [provider.Asker]: by its contract a provider never says "found" of what it did not take.
// What it took it may not know yet, or deny; and it may not answer.
func (a *account) Ask(ctx context.Context, key string) (ledger.Finding, ledger.Outcome) {
	a.w.count(questions, 1)
	troubled := a.w.trouble.Load()
	if troubled {
		time.Sleep(a.luck.upTo([]time.Duration{time.Second, 12 * time.Second}[a.luck.roll(2)]))
	}
	a.mu.Lock()
	known, took := a.accepted[key]
	a.mu.Unlock()
	fresh := took && time.Since(known.at) < a.lag
	switch {
	case ctx.Err() != nil, troubled && a.luck.roll(6) == 0:
		a.w.fire(mute, a.route.Fingerprint)
		return ledger.Unanswered, ledger.Outcome{Cause: "timeout"}
	case fresh, took && troubled && a.luck.roll(8) == 0:
		a.w.fire(denies, a.route.Fingerprint)
		return ledger.NotFound, ledger.Outcome{Cause: "status", Status: 404}
	case !took:
		return ledger.NotFound, ledger.Outcome{Cause: "status", Status: 404}
	case a.luck.roll(8) == 0:
		return ledger.Found, ledger.Outcome{Status: 200} // and its receipt cannot be read
	default:
		return ledger.Found, ledger.Outcome{Status: 200, Receipt: known.receipt}
	}
}

// reports tells what became of a reminder, if this provider does: that it took it, and later what it met,
// some of it twice, and each until somebody has recorded it.
func (a *account) reports(id ledger.Identity, receipt string, n int) {
	luck := a.w.dice(aReporter + 100*n + int(id.SendKey()[0]) + 256*int(id.SendKey()[1]))
	if luck.roll(3) > 0 {
		return
	}
	time.Sleep(luck.upTo(90 * time.Second))
	kinds := []ledger.ReportKind{ledger.ReportAccepted, ledger.ReportKinds()[1+luck.roll(4)]}
	for _, kind := range kinds[luck.roll(2):] {
		report := ledger.Report{
			Identity: id, Kind: kind, Provider: a.route.Provider, Message: fmt.Sprintf("%s-%s", receipt, kind),
			Receipt: receipt, At: time.Now(),
		}
		for tries := 6; tries > 0; tries-- {
			if a.w.reported(luck, report) && luck.roll(4) > 0 {
				break
			}
			a.w.fire(again, id.ReminderID)
			time.Sleep(time.Second + luck.upTo(15*time.Second))
		}
		time.Sleep(luck.upTo(30 * time.Second))
	}
}

// reported brings a report to a replica, and tells whether it was taken.
func (w *world) reported(luck *dice, report ledger.Report) (taken bool) {
	r := w.pick(luck)
	w.patiently(r, func() {
		news, err := r.sweep.Hear(context.Background(), report)
		if err != nil || r.crashed.Load() {
			return
		}
		taken = true
		proof := report.Kind == ledger.ReportAccepted || report.Kind == ledger.ReportDelivered
		if news {
			w.fire(map[bool]fault{true: proves, false: bounces}[proof], report.ReminderID)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.proven[report.Identity] = (w.proven[report.Identity] || proof) && !w.forgotten[report.Identity]
	})
	return taken
}
