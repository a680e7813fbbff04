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
	// Due lists what is due for the ledger at one provider, the longest due first.
	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	// Lanes lists the providers at which anything waits, configured or not.
	Lanes(ctx context.Context) ([]string, error)
	// Lapsed lists what was claimed within a span of now by holders that have gone silent since.
	Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
}

// Capacity tells what the providers could take now.
type Capacity interface {
	Names() []string
	Free(provider string) int  // calls that may begin now
	Shut(provider string) bool // its gate is closed
}

// Visitor looks after one entry.
type Visitor interface {
	Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Bounds of a sweep. Silent holders with an old claim are looked for at the start and then seldom, since the
// ledger has to read through everything that was claimed since.
const (
	sweepBatch    = 64                         // silent holders' entries
	strangerBatch = 512                        // entries of one provider that no lane looks after
	lookBack      = time.Hour                  // how old a claim may be, at most sweeps
	lookFar       = 48 * time.Hour             // and at some
	farEvery      = time.Hour                  // between two of those
	lookAll       = 100 * 366 * 24 * time.Hour // and at the start: nobody may have looked for long
	longLook      = time.Minute                // for one look, since the first reads the whole ledger
)

// Worker brings back what is due and ours, what its broker dropped, and what a silent holder left.
//
// Each provider has a lane of its own, filled up to what the provider can take, so that a slow one holds
// nobody else up. Several replicas may run workers on one ledger: whoever claims first wins, by version.
type Worker struct {
	Agenda   Agenda
	Capacity Capacity
	Visitor  Visitor
	Poll     time.Duration // between two looks of an idle lane for what is due
	Sweep    time.Duration // between two looks for silent holders, and for what waits where no lane works
	Failed   func(error)   // told when the agenda could not be read; may be nil

	visits   sync.WaitGroup
	mu       sync.Mutex
	inFlight map[ledger.Identity]bool // under mu: what is being visited here
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
		idle(ctx, w.Poll)
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

// sweep looks after what no lane sees: holders that went silent, and entries whose provider is not
// configured any more or is left alone, which still have to move elsewhere or to end in time.
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
		idle(ctx, w.Sweep)
	}
}

// strangers are the providers at which entries wait and no lane works: none is configured, or its gate is
// closed.
func (w *Worker) strangers(ctx context.Context) []string {
	lanes := w.lanes(ctx)
	works := make(map[string]bool)
	for _, name := range w.Capacity.Names() {
		works[name] = !w.Capacity.Shut(name)
	}
	var strange []string
	for _, lane := range lanes {
		if !works[lane] {
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

// due, lapsed and lanes ask the agenda with a bound: a connection that fell silent must not hold a lane up.
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

// idle waits for d, give or take a fifth, so that replicas do not march in step.
func idle(ctx context.Context, d time.Duration) {
	_ = wait(ctx, time.Duration(float64(d)*(0.8+0.4*rand.Float64())))
}
