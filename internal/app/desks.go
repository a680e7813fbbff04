package app

import (
	"context"
	"crypto/rand"
	"log/slog"
	mathrand "math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/relevance"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

func openDesk(cfg config.Config, store store, fleet *provider.Fleet, epochs deliver.Epochs, watch *telemetry.Telemetry, now func() time.Time) *deliver.Desk {
	types := make(map[string]policy.Type)
	questions := make(map[string]relevance.Question)
	for name, t := range cfg.Types {
		types[name] = policy.Type{
			MaxAttempts: t.MaxAttempts, Backoff: policy.Backoff{Base: t.Backoff.Base, Cap: t.Backoff.Cap},
			Deadline: t.Deadline, OnUnknown: ledger.OnUnknown(t.OnUnknown), AsksRelevance: t.Relevance != nil,
		}
		if q := t.Relevance; q != nil {
			questions[name] = relevance.Question{
				URL: q.URL, Headers: headers(q.Headers), Timeout: q.Timeout, SendUnanswered: q.Otherwise == config.OtherwiseSend,
			}
		}
	}
	channels := make(map[string]string)
	for name, c := range cfg.Channels {
		channels[name] = c.Provider
	}
	sources := make(map[string]deliver.Source)
	for name, s := range cfg.Sources {
		sources[name] = deliver.Source{
			RetriesBy: ledger.Owner(s.Retries), TakeoverAfter: s.TakeoverAfter, AnswerWithin: s.AnswerWithin,
			DeadLetters: s.DeadLetter,
		}
	}
	return deliver.New(deliver.Options{
		Ledger: store, Archive: store, Register: store,
		Slots: fleet, Sender: watch.Sender(fleet), Routes: fleet,
		Relevance: relevance.New(outbound.New(outbound.Options{}), questions),
		Epochs:    epochs,
		Lease:     cfg.Lease, Margin: cfg.Margin(),
		Memory: policy.Memory{Span: cfg.Memory, AcceptSince: cfg.AcceptSince},
		Types:  types, Channels: channels, Sources: sources, Asks: cfg.Asks,
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: callerPatience},
		Clock:   now, Draw: mathrand.Float64, Token: rand.Text,
		Late: watch.Late, Settled: watch.Settled,
	})
}

func openSweep(
	cfg config.Config, store store, fleet *provider.Fleet, failovers *reconcile.Failovers, desk *deliver.Desk,
	watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) *reconcile.Desk {
	return reconcile.New(reconcile.Options{
		Ledger: store, Records: store, Agenda: store,
		Visitor: watch.Visitor(desk), Providers: askable{fleet, watch.Asker(fleet)}, Rules: desk.Rules, Failovers: failovers,
		Sweep: cfg.Sweep, Clock: now, Token: rand.Text, Late: watch.Late, Swept: watch.Swept,
		Failed: seldom(30*time.Second, func(err error) { log.Warn("not everything could be reconciled", "error", err) }),
	})
}

func openRedrive(
	cfg config.Config, store store, failovers *reconcile.Failovers, desk *deliver.Desk,
	watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) *redrive.Desk {
	memory := policy.Memory{Span: cfg.Memory, AcceptSince: cfg.AcceptSince}
	return redrive.New(redrive.Options{
		Ledger: store, Letters: store, Book: store, Reader: desk, Epochs: failovers, Rules: desk.Rules,
		Admit: func(e ledger.Entry, now time.Time) ledger.Admission { return policy.Admit(e, e.NotBefore, memory, now) },
		Most:  cfg.Redrive.MaxRedrives, Running: cfg.Redrive.MaxRunning, Lease: cfg.Lease, Poll: redrivePoll,
		Clock: now, Token: rand.Text, Turned: watch.Redriven,
		Failed: seldom(30*time.Second, func(err error) { log.Warn("a redrive cannot go on", "error", err) }),
	})
}

func openRetention(cfg config.Config, store store, log *slog.Logger, now func() time.Time) *retention.Desk {
	return retention.New(retention.Options{
		Ledger: store, Shelves: store,
		Keep: ledger.Retention{
			Sent: cfg.Retention.Sent, Dead: cfg.Retention.Dead, Dropped: cfg.Retention.Dropped, Entry: cfg.Memory,
		},
		Every: purgeEvery, Breath: purgeBreath, Now: now, Token: rand.Text,
		Walked: func(w retention.Walk) {
			level := slog.LevelInfo
			if w.Payloads+w.Entries+w.Moved == 0 {
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "what had been kept long enough is gone", "seen", w.Seen, "payloads", w.Payloads, "entries", w.Entries, "moved", w.Moved)
		},
		Failed: func(err error) { log.Warn("a purge cannot go on", "error", err) },
	})
}

// askable is the fleet, whose questions are watched.
type askable struct {
	*provider.Fleet
	asker telemetry.Asker
}

func (a askable) Ask(ctx context.Context, name, sendKey string) (ledger.Finding, ledger.Outcome) {
	return a.asker.Ask(ctx, name, sendKey)
}

// tellFailover says in the log that the database changed under us.
func tellFailover(log *slog.Logger, f ledger.Failover) {
	log.Warn("the database is another one than before: what it may have forgotten is held in doubt",
		"noticed", f.Noticed, "window", f.Window.String())
}
