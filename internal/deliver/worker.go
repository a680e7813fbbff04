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
}

// Capacity tells what the providers could take now.
type Capacity interface {
	Names() []string
	Free(provider string) int // calls that may begin now
}

// Visitor looks after one entry.
type Visitor interface {
	Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Worker brings back what is due and ours, and what its broker dropped.
//
// Each provider has a lane of its own, filled up to what the provider can take, so that a slow one holds
// nobody else up. Several replicas may run workers on one ledger: whoever claims first wins, by version.
type Worker struct {
	Agenda   Agenda
	Capacity Capacity
	Visitor  Visitor
	Poll     time.Duration  // between two looks of an idle lane for what is due
	Failed   func(error)    // told when the agenda could not be read; may be nil
	Draw     func() float64 // in [0, 1), for the pauses; nil for the runtime's own

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
		w.idle(ctx)
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

// due asks the agenda with a bound: a connection that fell silent must not hold a lane up.
func (w *Worker) due(ctx context.Context, lane string, limit int) []ledger.Identity {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	due, err := w.Agenda.Due(bounded, lane, limit)
	if err != nil && ctx.Err() == nil && w.Failed != nil {
		w.Failed(err)
	}
	return due
}

// idle waits for the next look, give or take a fifth, so that replicas do not march in step.
func (w *Worker) idle(ctx context.Context) {
	draw := w.Draw
	if draw == nil {
		draw = rand.Float64
	}
	_ = wait(ctx, time.Duration(float64(w.Poll)*(0.8+0.4*draw())))
}
