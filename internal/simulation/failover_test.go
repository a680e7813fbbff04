package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// primary is the database of an epoch. One in memory keeps a journal, so that the next one can be behind it.
type primary struct {
	dbtest.Store
	epoch   int
	follows bool // another may come after it
	mu      sync.Mutex
	journal []written
}

// written is one commit, as it can be made again.
type written struct {
	at time.Time // by the ledger's clock
	ledger.Identity
	again func(dbtest.Store)
}

// begin makes a store the first primary.
func (w *world) begin(s dbtest.Store) {
	p := &primary{Store: s}
	if _, inMemory := s.(*dbtest.Memory); inMemory && w.forgetful {
		p.follows = true
	}
	w.ledger.Store(p)
}

func (w *world) store() dbtest.Store { return w.ledger.Load().Store }

// commit makes a write, and keeps it for a standby.
func commit[T any](ctx context.Context, w *world, id ledger.Identity, write func(context.Context, dbtest.Store) (T, error)) (T, error) {
	p := w.ledger.Load()
	done, err := write(ctx, p.Store)
	if err == nil && p.follows {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.journal = append(p.journal, written{w.now(), id, func(s dbtest.Store) { _, _ = write(context.Background(), s) }})
	}
	return done, err
}

// fallBack promotes a standby that has not got the last commits yet. What they promised is not owed any
// more, but what they sent stays sent.
func (w *world) fallBack(behind time.Duration) {
	w.writing.Lock()
	defer w.writing.Unlock()
	old := w.ledger.Load()
	old.mu.Lock()
	defer old.mu.Unlock()
	cut := w.now().Add(-behind)
	var at time.Time
	memory := dbtest.NewMemory(func() time.Time {
		if at.IsZero() {
			return w.now()
		}
		return at
	})
	next := &primary{Store: memory, epoch: old.epoch + 1, follows: true}
	for _, commit := range old.journal {
		if commit.at.After(cut) {
			w.forgets(commit)
			continue
		}
		at = commit.at
		commit.again(memory)
		next.journal = append(next.journal, commit)
	}
	at = time.Time{}
	memory.Move(fmt.Sprint(next.epoch))
	w.mu.Lock()
	w.fellBack = time.Now()
	w.mu.Unlock()
	w.ledger.Store(next)
}

// forgets takes back what a commit promised.
func (w *world) forgets(commit written) {
	id := commit.Identity
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.forgotten[id] {
		w.forgotten[id] = true
		w.tally.counted[forgotten]++
	}
	delete(w.acked, id)
	delete(w.barred, id)
	delete(w.dropped, id)
	delete(w.proven, id)
	delete(w.erased, id)
}

// lately tells whether a reminder's last commits were forgotten so short a time ago that somebody may be
// at work on the strength of them.
func (w *world) lately(id ledger.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.forgotten[id] && time.Since(w.fellBack) <= 2*lease
}

// elsewhere tells whether a reminder was sent by one provider, forgotten, and then led to another: nothing
// that is left says where a repeat would be harmless.
func (w *world) elsewhere(id ledger.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := w.sends[id]
	return w.forgotten[id] && slices.ContainsFunc(sent, func(s send) bool { return s.account != sent[0].account })
}
