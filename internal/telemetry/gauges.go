package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sendonce/sendonce/internal/ledger"
)

// staleAfter is how many intervals old a backlog may be and still be shown.
const staleAfter = 3

// BacklogCounter counts the entries that are not final, and the dead letters.
type BacklogCounter interface {
	Backlog(ctx context.Context) (ledger.Backlog, error)
}

// gauges holds the values of the gauges: the last backlog, and functions that return the providers' gates and
// capacity and the last failover. A scrape reads it and never waits for the ledger.
type gauges struct {
	providers []string

	mu        sync.Mutex
	backlog   ledger.Backlog
	countedAt time.Time     // when the query of the backlog started; before the first one, when gauges was created
	maxAge    time.Duration // how old the backlog may be and still be shown; 0 before the first one
	gates     func() []ledger.Gate
	capacity  func() map[string]int
	failover  func() ledger.Failover
}

// WatchBacklog counts the backlog at once and then after every interval, until ctx ends. A count that takes
// longer than the interval has failed. A failure is counted and logged; once three intervals have passed
// without a count, the gauges are absent from the scrape until the next one.
func (t *Telemetry) WatchBacklog(ctx context.Context, source BacklogCounter, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		t.refresh(ctx, source, every)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *Telemetry) refresh(ctx context.Context, source BacklogCounter, every time.Duration) {
	started := time.Now()
	bounded, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	backlog, err := source.Backlog(bounded)
	switch {
	case err == nil:
		t.gauges.set(backlog, started, staleAfter*every)
	case ctx.Err() == nil:
		t.metrics.backlogFailures.inc(ctx, "")
		t.log.LogAttrs(ctx, slog.LevelError, "counting the backlog failed", slog.String("error", redact(err.Error())))
	}
}

// Providers registers the functions behind the gauges of the providers' gates and capacity. Both are called at
// every scrape, and must return from memory.
func (t *Telemetry) Providers(gates func() []ledger.Gate, capacity func() map[string]int) {
	t.gauges.mu.Lock()
	defer t.gauges.mu.Unlock()
	t.gauges.gates, t.gauges.capacity = gates, capacity
}

// Failovers registers the function behind the gauge of the last detected failover. It is called at every scrape,
// and must return from memory.
func (t *Telemetry) Failovers(last func() ledger.Failover) {
	t.gauges.mu.Lock()
	defer t.gauges.mu.Unlock()
	t.gauges.failover = last
}

// set replaces the backlog, counted at a time, and how old it may become and still be shown.
func (g *gauges) set(backlog ledger.Backlog, at time.Time, maxAge time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backlog, g.countedAt, g.maxAge = backlog, at, maxAge
}

type gaugeInstruments struct {
	pending, ready, capacity, dead, gate metric.Int64ObservableGauge
	oldest, age, failover                metric.Float64ObservableGauge
}

func newGauges(meter metric.Meter, providers []string) (*gauges, error) {
	var first error
	intGauge := func(name, help string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithDescription(help))
		first = firstError(first, err)
		return g
	}
	secondsGauge := func(name, help string) metric.Float64ObservableGauge {
		g, err := meter.Float64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit("s"))
		first = firstError(first, err)
		return g
	}
	inst := gaugeInstruments{
		pending:  intGauge("sendonce_pending", "Entries that are not final, by state."),
		oldest:   secondsGauge("sendonce_pending_oldest_seconds", "Age of the oldest pending entry, by state: since its claim, its due time or the start of its doubt."),
		ready:    intGauge("sendonce_ready", "Waiting entries that are due, by provider."),
		capacity: intGauge("sendonce_capacity", "Calls that a replica may have in flight at a provider."),
		dead:     intGauge("sendonce_dead", "Dead letters that are neither redriven nor discarded, by class."),
		gate:     intGauge("sendonce_gate_closed", "1 from the closing of the provider's gate until a call has succeeded."),
		age:      secondsGauge("sendonce_backlog_age_seconds", "Age of the backlog that the other gauges show."),
		failover: secondsGauge("sendonce_failover_noticed_timestamp_seconds", "Unix time at which this replica detected that the database had failed over or been restored; 0 for never."),
	}
	g := &gauges{providers: providers, countedAt: time.Now()}
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g.observe(o, inst, time.Now())
		return nil
	}, inst.pending, inst.oldest, inst.ready, inst.capacity, inst.dead, inst.gate, inst.age, inst.failover)
	return g, firstError(first, err)
}

func firstError(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

func (g *gauges) observe(o metric.Observer, inst gaugeInstruments, now time.Time) {
	g.mu.Lock()
	backlog, age, maxAge := g.backlog, now.Sub(g.countedAt), g.maxAge
	gates, capacity, failover := g.gates, g.capacity, g.failover
	g.mu.Unlock()

	o.ObserveFloat64(inst.age, age.Seconds())
	if age <= maxAge {
		g.observeBacklog(o, inst, backlog)
	}
	if failover != nil {
		noticed := 0.0
		if last := failover().Noticed; !last.IsZero() {
			noticed = float64(last.UnixMilli()) / 1000
		}
		o.ObserveFloat64(inst.failover, noticed)
	}
	if capacity != nil {
		g.perProvider(o, inst.capacity, toInt64(capacity()))
	}
	if gates != nil {
		// Gates are judged by the ledger's clock; the backlog gives its offset from the local clock.
		if !backlog.Now.IsZero() {
			now = backlog.Now.Add(age)
		}
		g.perProvider(o, inst.gate, closedGates(gates(), now))
	}
}

func (g *gauges) observeBacklog(o metric.Observer, inst gaugeInstruments, backlog ledger.Backlog) {
	counts, oldest := map[ledger.State]int64{}, map[ledger.State]float64{}
	for _, c := range backlog.Pending {
		counts[c.State] = c.Count
		if !c.Since.IsZero() {
			oldest[c.State] = max(0, backlog.Now.Sub(c.Since).Seconds())
		}
	}
	for _, s := range ledger.States() {
		if s.Pending() {
			label := metric.WithAttributes(attribute.String("state", string(s)))
			o.ObserveInt64(inst.pending, counts[s], label)
			o.ObserveFloat64(inst.oldest, oldest[s], label)
		}
	}
	for _, c := range ledger.DeadClasses() {
		o.ObserveInt64(inst.dead, backlog.Dead[c], metric.WithAttributes(attribute.String("class", string(c))))
	}
	g.perProvider(o, inst.ready, backlog.Ready)
}

// perProvider observes a value for every configured provider, and the sum of all others as "other".
func (g *gauges) perProvider(o metric.Observer, inst metric.Int64ObservableGauge, values map[string]int64) {
	var known, total int64
	for _, n := range values {
		total += n
	}
	for _, name := range g.providers {
		known += values[name]
		o.ObserveInt64(inst, values[name], metric.WithAttributes(attribute.String("provider", name)))
	}
	if rest := total - known; rest != 0 {
		o.ObserveInt64(inst, rest, metric.WithAttributes(attribute.String("provider", other)))
	}
}

// closedGates reports a gate as closed until a call has succeeded: between the end of a closure and the probe
// call a gate would look open for a moment, and the "for" of an alert would start over each time.
func closedGates(gates []ledger.Gate, now time.Time) map[string]int64 {
	closed := make(map[string]int64, len(gates))
	for _, g := range gates {
		if status := g.Status(now); !status.Open || status.Probe {
			closed[g.Provider] = 1
		}
	}
	return closed
}

func toInt64(values map[string]int) map[string]int64 {
	all := make(map[string]int64, len(values))
	for name, n := range values {
		all[name] = int64(n)
	}
	return all
}
