package deliver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Agenda tells what the ledger has to look after.
type Agenda interface {
	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	Lanes(ctx context.Context) ([]string, error)
	Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
}

// Capacity tells what the providers could take now.
type Capacity interface {
	Names() []string
	Free(provider string) int
	Shut(provider string) bool
}

// Visitor looks after one entry.
type Visitor interface {
	Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Bounds of a sweep: how many entries without a lane of their own it looks after, and how old a silent
// holder's claim may be. Old claims are looked for at the start and then seldom, since the ledger has to
// read through everything that was claimed since.
const (
	sweepBatch    = 64
	strangerBatch = 512
	lookBack      = time.Hour
	lookFar       = 48 * time.Hour
	farEvery      = time.Hour
	longLook      = time.Minute                // for one look, since the first reads the whole ledger
	lookAll       = 100 * 366 * 24 * time.Hour // at the start: nobody may have looked for long
)

// Worker brings back what is due and ours, what its broker dropped, and what a silent holder left.
//
// Each provider has a lane of its own, filled up to what the provider can take, so that a slow one holds
// nobody else up. Several replicas may run workers on one ledger: whoever claims first wins, by version.
type Worker struct {
	Agenda   Agenda
	Capacity Capacity
	Visitor  Visitor
	Poll     time.Duration // how often an idle lane looks for what is due
	Sweep    time.Duration // how often silent holders and lanes without a provider are looked for
	Failed   func(error)   // told when the agenda could not be read
	inFlight map[ledger.Identity]bool
	mu       sync.Mutex
	visits   sync.WaitGroup
}

// Run works until ctx ends, and returns when its last visit has ended.
func (w *Worker) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	for _, provider := range w.Capacity.Names() {
		lanes.Go(func() { w.lane(ctx, provider) })
	}
	lanes.Go(func() { w.sweep(ctx) })
	lanes.Wait()
	w.visits.Wait()
}

// lane keeps one provider busy: as soon as a visit ends and there may be more, it looks again.
func (w *Worker) lane(ctx context.Context, provider string) {
	moved := make(chan bool, 1)
	for ctx.Err() == nil {
		started := 0
		if free := w.Capacity.Free(provider); free > 0 {
			// What is in flight may still stand on the agenda; ask for so many more.
			due := w.due(ctx, provider, free+w.busy())
			started = w.start(ctx, due, free, moved)
		}
		if started > 0 && w.next(ctx, moved) {
			continue
		}
		pause(ctx, w.Poll)
	}
}

// next waits for a visit to end, and tells whether it moved its entry. One that did not, because the
// gate closed just then, say, would be found due again at once.
func (w *Worker) next(ctx context.Context, moved <-chan bool) bool {
	again := time.NewTimer(w.Poll) // a slow visit holds up nobody else: its lane may have places left
	defer again.Stop()
	select {
	case progress := <-moved:
		return progress
	case <-again.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sweep looks after what no lane sees: entries bound to a provider that is not configured any more, and
// holders that went silent.
func (w *Worker) sweep(ctx context.Context) {
	far, lookedFar := lookAll, time.Time{}
	for ctx.Err() == nil {
		within := lookBack
		if time.Since(lookedFar) >= farEvery {
			within = far
		}
		lapsed, err := w.lapsed(ctx, within)
		if err == nil && within == far && len(lapsed) < sweepBatch {
			far, lookedFar = lookFar, time.Now()
		}
		w.start(ctx, lapsed, sweepBatch, nil)
		for _, lane := range w.strangers(ctx) {
			w.start(ctx, w.due(ctx, lane, strangerBatch), strangerBatch, nil)
		}
		pause(ctx, w.Sweep)
	}
}

// strangers are the lanes that have waiting entries and no provider.
func (w *Worker) strangers(ctx context.Context) []string {
	lanes := w.lanes(ctx)
	known := make(map[string]bool)
	for _, name := range w.Capacity.Names() {
		known[name] = !w.Capacity.Shut(name) // while its gate is closed, no lane looks after what waits there
	}
	var strange []string
	for _, lane := range lanes {
		if !known[lane] {
			strange = append(strange, lane)
		}
	}
	return strange
}

// start visits at most limit of the entries that nobody here is visiting yet.
func (w *Worker) start(ctx context.Context, ids []ledger.Identity, limit int, moved chan<- bool) int {
	started := 0
	for _, id := range ids {
		if started == limit || !w.enter(id) {
			continue
		}
		started++
		w.visits.Go(func() {
			// What it met is told by whoever watches visits; an entry that it failed on stays due.
			reply, err := w.Visitor.Visit(ctx, id)
			w.leave(id, moved, err == nil && !reply.Duplicate)
		})
	}
	return started
}

func (w *Worker) enter(id ledger.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight[id] {
		return false
	}
	if w.inFlight == nil {
		w.inFlight = make(map[ledger.Identity]bool)
	}
	w.inFlight[id] = true
	return true
}

func (w *Worker) leave(id ledger.Identity, moved chan<- bool, progress bool) {
	w.mu.Lock()
	delete(w.inFlight, id)
	w.mu.Unlock()
	select {
	case moved <- progress: // a nil channel never takes it
	default:
	}
}

func (w *Worker) busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inFlight)
}

// The agenda is asked with a bound: a connection that fell silent must not hold a lane up.

func (w *Worker) due(ctx context.Context, lane string, limit int) []ledger.Identity {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	due, err := w.Agenda.Due(bounded, lane, limit)
	w.report(ctx, err)
	return due
}

func (w *Worker) lapsed(ctx context.Context, within time.Duration) ([]ledger.Identity, error) {
	bounded, cancel := context.WithTimeout(ctx, longLook)
	defer cancel()
	lapsed, err := w.Agenda.Lapsed(bounded, within, sweepBatch)
	w.report(ctx, err)
	return lapsed, err
}

func (w *Worker) lanes(ctx context.Context) []string {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	lanes, err := w.Agenda.Lanes(bounded)
	w.report(ctx, err)
	return lanes
}

func (w *Worker) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && w.Failed != nil {
		w.Failed(err)
	}
}

// pause waits for d, give or take a fifth, so that replicas do not march in step.
func pause(ctx context.Context, d time.Duration) {
	_ = wait(ctx, time.Duration(float64(d)*(0.8+0.4*rand.Float64())))
}
