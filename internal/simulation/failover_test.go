package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// primary is the database of one epoch. The memory store keeps a journal, so that the next primary can lag behind
// it.
type primary struct {
	storetest.Store
	epoch     int
	journaled bool // another primary may follow
	mu        sync.Mutex
	journal   []commitRecord
}

// commitRecord is one commit that can be replayed.
type commitRecord struct {
	at time.Time // by the ledger's clock
	ledger.Identity
	replay func(storetest.Store)
}

// begin makes a store the first primary.
func (sim *simulation) begin(s storetest.Store) {
	p := &primary{Store: s}
	if _, inMemory := s.(*storetest.Memory); inMemory && sim.losesCommits {
		p.journaled = true
	}
	sim.ledger.Store(p)
}

func (sim *simulation) store() storetest.Store { return sim.ledger.Load().Store }

// commit executes a write, and records it for a standby.
func commit[T any](ctx context.Context, sim *simulation, id ledger.Identity, write func(context.Context, storetest.Store) (T, error)) (T, error) {
	p := sim.ledger.Load()
	done, err := write(ctx, p.Store)
	if err == nil && p.journaled {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.journal = append(p.journal, commitRecord{sim.now(), id, func(s storetest.Store) { _, _ = write(context.Background(), s) }})
	}
	return done, err
}

// failOver promotes a standby that lacks the last commits. The promises of the lost commits no longer hold, but
// what was sent stays sent.
func (sim *simulation) failOver(behind time.Duration) {
	sim.writeMu.Lock()
	defer sim.writeMu.Unlock()
	old := sim.ledger.Load()
	old.mu.Lock()
	defer old.mu.Unlock()
	cut := sim.now().Add(-behind)
	var at time.Time
	memory := storetest.NewMemory(func() time.Time {
		if at.IsZero() {
			return sim.now()
		}
		return at
	})
	next := &primary{Store: memory, epoch: old.epoch + 1, journaled: true}
	for _, commit := range old.journal {
		if commit.at.After(cut) {
			sim.loseCommit(commit)
			continue
		}
		at = commit.at
		commit.replay(memory)
		next.journal = append(next.journal, commit)
	}
	at = time.Time{}
	memory.SetEpoch(fmt.Sprint(next.epoch))
	sim.mu.Lock()
	sim.commitsLostAt = time.Now()
	sim.mu.Unlock()
	sim.ledger.Store(next)
}

// loseCommit withdraws what a lost commit promised.
func (sim *simulation) loseCommit(commit commitRecord) {
	id := commit.Identity
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if !sim.lostCommits[id] {
		sim.lostCommits[id] = true
		sim.tally.counts[remindersWithLostCommits]++
	}
	delete(sim.acked, id)
	delete(sim.inFlightAtCancel, id)
	delete(sim.droppedAt, id)
	delete(sim.reportedSent, id)
	delete(sim.holderAtErasure, id)
}

// recentlyLost reports whether a reminder's last commits were lost so recently that a task may still act on them.
func (sim *simulation) recentlyLost(id ledger.Identity) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.lostCommits[id] && time.Since(sim.commitsLostAt) <= 2*lease
}

// sentByTwoProviders reports whether a reminder was sent by one provider, lost in a failover, and then routed to
// another provider: the ledger cannot know then where a repeat would be harmless.
func (sim *simulation) sentByTwoProviders(id ledger.Identity) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sent := sim.sends[id]
	return sim.lostCommits[id] && slices.ContainsFunc(sent, func(s send) bool { return s.fingerprint != sent[0].fingerprint })
}
