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

func newDeliverer(cfg config.Config, store store, pool *provider.Pool, failovers deliver.FailoverDetector, tel *telemetry.Telemetry, now func() time.Time) *deliver.Deliverer {
	types := make(map[string]policy.Type)
	checks := make(map[string]relevance.Check)
	for name, t := range cfg.Types {
		types[name] = policy.Type{
			MaxAttempts: t.MaxAttempts, Backoff: policy.Backoff{Base: t.Backoff.Base, Cap: t.Backoff.Cap},
			Deadline: t.Deadline, OnUnknown: ledger.OnUnknown(t.OnUnknown), CheckRelevance: t.Relevance != nil,
		}
		if rel := t.Relevance; rel != nil {
			checks[name] = relevance.Check{
				URL: rel.URL, Headers: headers(rel.Headers), Timeout: rel.Timeout, SendWithoutAnswer: rel.OnNoAnswer == config.OnNoAnswerSend,
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
		Ledger: store, Details: store, Reminders: store,
		Slots: pool, Sender: tel.Sender(pool), Routes: pool,
		Relevance: relevance.New(outbound.New(outbound.Options{}), checks),
		Failovers: failovers,
		Lease:     cfg.Lease, Margin: cfg.Margin(),
		Memory: policy.Memory{Span: cfg.Memory, AcceptSince: cfg.AcceptSince},
		Types:  types, Channels: channels, Sources: sources, LookupSchedule: cfg.LookupSchedule,
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: callerTimeout},
		Clock:   now, Random: mathrand.Float64, Token: rand.Text,
		OnLate: tel.Late, OnSettled: tel.Settled,
	})
}

func newReconciler(
	cfg config.Config, store store, pool *provider.Pool, failovers *reconcile.FailoverDetector, deliverer *deliver.Deliverer,
	tel *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) *reconcile.Reconciler {
	return reconcile.New(reconcile.Options{
		Ledger: store, Records: store, Work: store,
		Processor: tel.Processor(deliverer), Providers: lookups{pool, tel.Looker(pool)}, Rules: deliverer.Rules, Failovers: failovers,
		Interval: cfg.Sweep, Clock: now, Token: rand.Text, OnLate: tel.Late, OnSweep: tel.SweepDone,
		OnError: logEvery(30*time.Second, func(err error) { log.Warn("reconciler: sweep incomplete", "error", err) }),
	})
}

func newRedriver(
	cfg config.Config, store store, failovers *reconcile.FailoverDetector, deliverer *deliver.Deliverer,
	tel *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) *redrive.Redriver {
	memory := policy.Memory{Span: cfg.Memory, AcceptSince: cfg.AcceptSince}
	return redrive.New(redrive.Options{
		Ledger: store, DeadLetters: store, Redrives: store, Reparser: deliverer, Failovers: failovers, Rules: deliverer.Rules,
		Admit:       func(e ledger.Entry, now time.Time) ledger.Admission { return policy.Admit(e, e.NotBefore, memory, now) },
		MaxRedrives: cfg.Redrive.MaxRedrives, MaxRunning: cfg.Redrive.MaxRunning, Lease: cfg.Lease, Poll: redrivePoll,
		Clock: now, Token: rand.Text, OnItemDone: tel.RedriveItemDone,
		OnError: logEvery(30*time.Second, func(err error) { log.Warn("redriver: processing failed", "error", err) }),
	})
}

func newPurger(cfg config.Config, store store, log *slog.Logger, now func() time.Time) *retention.Purger {
	return retention.New(retention.Options{
		Ledger: store, Store: store,
		Keep: ledger.Retention{
			Sent: cfg.Retention.Sent, Dead: cfg.Retention.Dead, Dropped: cfg.Retention.Dropped, Entry: cfg.Memory,
		},
		Every: purgeEvery, PagePause: purgePagePause, Now: now, Token: rand.Text,
		OnPurge: func(run retention.PurgeRun) {
			level := slog.LevelInfo
			if run.Payloads+run.Entries+run.Moved == 0 {
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "retention purge finished",
				"scanned", run.Seen, "payloads_deleted", run.Payloads, "entries_deleted", run.Entries, "changed_meanwhile", run.Moved)
		},
		OnError: func(err error) { log.Warn("retention purge failed", "error", err) },
	})
}

// lookups is the provider pool with its lookups recorded by telemetry.
type lookups struct {
	*provider.Pool
	looker telemetry.Looker
}

func (l lookups) Lookup(ctx context.Context, name, sendKey string) (ledger.LookupResult, ledger.Outcome) {
	return l.looker.Lookup(ctx, name, sendKey)
}

// logFailover logs that the database has failed over or been restored.
func logFailover(log *slog.Logger, f ledger.Failover) {
	log.Warn("the database failed over or was restored: commits may be lost, affected entries are in doubt",
		"noticed", f.Noticed, "window", f.Window.String())
}
