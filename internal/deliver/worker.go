package deliver

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// DueLister lists the entries that the ledger has to process itself.
type DueLister interface {
	// Due lists at most limit entries of one provider that are due, the longest due first.
	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
}

// Capacity tells how much work the providers can take now.
type Capacity interface {
	// Names returns the configured providers.
	Names() []string
	// Free returns how many calls to the provider may start now.
	Free(provider string) int
}

// Processor processes one entry.
type Processor interface {
	Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Worker processes entries that are due: those that the ledger owns, and those whose broker has stopped retrying.
//
// Each provider has a loop of its own, filled up to the provider's capacity, so that a slow provider does not delay
// the others. Several replicas may run workers over one ledger: the first claim wins, by version.
type Worker struct {
	Due       DueLister
	Capacity  Capacity
	Processor Processor
	Poll      time.Duration  // between two listings for an idle provider
	OnError   func(error)    // called when listing due entries failed; may be nil
	Random    func() float64 // in [0, 1), for the pauses; nil for math/rand

	tasks    sync.WaitGroup
	mu       sync.Mutex
	inFlight map[ledger.Identity]bool // guarded by mu: entries that this worker is processing
}

// Run works until ctx ends, and returns when its last task has ended.
func (w *Worker) Run(ctx context.Context) {
	var providers sync.WaitGroup
	for _, provider := range w.Capacity.Names() {
		providers.Go(func() { w.runProvider(ctx, provider) })
	}
	providers.Wait()
	w.tasks.Wait()
}

// runProvider keeps one provider busy: when a task ends and more may be due, it lists again at once.
func (w *Worker) runProvider(ctx context.Context, provider string) {
	done := make(chan bool, 1)
	for ctx.Err() == nil {
		started := 0
		if free := w.Capacity.Free(provider); free > 0 {
			// Entries in flight may still be listed as due, so list that many more.
			due := w.due(ctx, provider, free+w.busy())
			started = w.start(ctx, due, free, done)
		}
		if started > 0 && w.next(ctx, done) {
			continue
		}
		w.idle(ctx)
	}
}

// next waits for a task to end, and reports whether it changed its entry. An entry that did not change, because
// the gate closed just then for example, would be listed as due again at once.
func (w *Worker) next(ctx context.Context, done <-chan bool) bool {
	poll := time.NewTimer(w.Poll) // a slow task does not delay others: its provider may have capacity left
	defer poll.Stop()
	select {
	case progress := <-done:
		return progress
	case <-poll.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// start processes at most limit of the entries, leaving out those that this worker is processing already.
func (w *Worker) start(ctx context.Context, ids []ledger.Identity, limit int, done chan<- bool) int {
	started := 0
	for _, id := range ids {
		if started == limit || !w.begin(id) {
			continue
		}
		started++
		w.tasks.Go(func() {
			// A decorator of the processor records the reply; an entry whose processing failed stays due.
			reply, err := w.Processor.Process(ctx, id)
			w.end(id, done, err == nil && !reply.Duplicate)
		})
	}
	return started
}

func (w *Worker) begin(id ledger.Identity) bool {
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

func (w *Worker) end(id ledger.Identity, done chan<- bool, progress bool) {
	w.mu.Lock()
	delete(w.inFlight, id)
	w.mu.Unlock()
	select {
	case done <- progress: // a nil channel is never ready
	default:
	}
}

func (w *Worker) busy() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.inFlight)
}

// due lists due entries with a timeout: a connection that no longer answers must not block a provider's loop.
func (w *Worker) due(ctx context.Context, provider string, limit int) []ledger.Identity {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	due, err := w.Due.Due(bounded, provider, limit)
	if err != nil && ctx.Err() == nil && w.OnError != nil {
		w.OnError(err)
	}
	return due
}

// idle waits until the next listing, with a jitter of a fifth, so that replicas do not poll in step.
func (w *Worker) idle(ctx context.Context) {
	random := w.Random
	if random == nil {
		random = rand.Float64
	}
	_ = sleep(ctx, time.Duration(float64(w.Poll)*(0.8+0.4*random())))
}
