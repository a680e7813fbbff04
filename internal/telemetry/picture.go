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

// staleAfter is how many intervals old a census may be and still be shown.
const staleAfter = 3

// Census counts what needs somebody's attention.
type Census interface {
	Census(ctx context.Context) (ledger.Census, error)
}

// picture is the last census, and what the providers' lanes say of themselves, as gauges. A scrape reads
// it and never waits for the ledger.
type picture struct {
	providers []string

	mu       sync.Mutex
	census   ledger.Census
	taken    time.Time     // when the census was asked for; at first, when the picture was made
	fresh    time.Duration // how old it may be; 0 before the first one
	gates    func() []ledger.Gate
	capacity func() map[string]int
	failover func() ledger.Failover
}

// Watch takes a census at once and then after every interval, until ctx ends. One that takes longer than
// the interval has failed. A census that fails is counted and told; once three intervals have passed
// without one, the gauges are gone from the scrape until the next.
func (t *Telemetry) Watch(ctx context.Context, source Census, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		t.look(ctx, source, every)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *Telemetry) look(ctx context.Context, source Census, every time.Duration) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	census, err := source.Census(bounded)
	switch {
	case err == nil:
		t.picture.take(census, began, staleAfter*every)
	case ctx.Err() == nil:
		t.figures.censusFails.one(ctx, "")
		t.log.LogAttrs(ctx, slog.LevelError, "census", slog.String("error", redact(err.Error())))
	}
}

// Lanes makes the gates and the free slots of the providers visible. Both are asked at every scrape, and
// have to answer from memory.
func (t *Telemetry) Lanes(gates func() []ledger.Gate, capacity func() map[string]int) {
	t.picture.mu.Lock()
	defer t.picture.mu.Unlock()
	t.picture.gates, t.picture.capacity = gates, capacity
}

// Failovers makes visible when the database changed under us last. It is asked at every scrape, and has to
// answer from memory.
func (t *Telemetry) Failovers(last func() ledger.Failover) {
	t.picture.mu.Lock()
	defer t.picture.mu.Unlock()
	t.picture.failover = last
}

func (p *picture) take(c ledger.Census, at time.Time, fresh time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.census, p.taken, p.fresh = c, at, fresh
}

type gauges struct {
	pending, ready, capacity, dead, gate metric.Int64ObservableGauge
	oldest, age, failover                metric.Float64ObservableGauge
}

func newPicture(meter metric.Meter, providers []string) (*picture, error) {
	var first error
	whole := func(name, help string) metric.Int64ObservableGauge {
		g, err := meter.Int64ObservableGauge(name, metric.WithDescription(help))
		first = firstOf(first, err)
		return g
	}
	seconds := func(name, help string) metric.Float64ObservableGauge {
		g, err := meter.Float64ObservableGauge(name, metric.WithDescription(help), metric.WithUnit("s"))
		first = firstOf(first, err)
		return g
	}
	g := gauges{
		pending:  whole("sendonce_pending", "Entries that still have a way to go."),
		oldest:   seconds("sendonce_pending_oldest_seconds", "Age of the oldest pending entry: since its claim, its due time or the start of its doubt."),
		ready:    whole("sendonce_ready", "Waiting entries that are due now."),
		capacity: whole("sendonce_capacity", "Calls that a provider may be given now."),
		dead:     whole("sendonce_dead", "Dead letters that nobody has settled yet."),
		gate:     whole("sendonce_gate_closed", "1 while nobody may call the provider, and until a call has shown that it is well again."),
		age:      seconds("sendonce_census_age_seconds", "How old the census is that the other gauges show."),
		failover: seconds("sendonce_failover_noticed_timestamp_seconds", "When this replica noticed that the database had changed under it, since 1970; 0 for never."),
	}
	p := &picture{providers: providers, taken: time.Now()}
	_, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		p.show(o, g, time.Now())
		return nil
	}, g.pending, g.oldest, g.ready, g.capacity, g.dead, g.gate, g.age, g.failover)
	return p, firstOf(first, err)
}

func firstOf(first, next error) error {
	if first != nil {
		return first
	}
	return next
}

func (p *picture) show(o metric.Observer, g gauges, now time.Time) {
	p.mu.Lock()
	census, age, fresh := p.census, now.Sub(p.taken), p.fresh
	gates, capacity, failover := p.gates, p.capacity, p.failover
	p.mu.Unlock()

	o.ObserveFloat64(g.age, age.Seconds())
	if age <= fresh {
		p.showCensus(o, g, census)
	}
	if failover != nil {
		noticed := 0.0
		if last := failover().Noticed; !last.IsZero() {
			noticed = float64(last.UnixMilli()) / 1000
		}
		o.ObserveFloat64(g.failover, noticed)
	}
	if capacity != nil {
		p.perProvider(o, g.capacity, widened(capacity()))
	}
	if gates != nil {
		// Gates are judged by the ledger's clock; the census tells how far ours is from it.
		if !census.Now.IsZero() {
			now = census.Now.Add(age)
		}
		p.perProvider(o, g.gate, closedGates(gates(), now))
	}
}

func (p *picture) showCensus(o metric.Observer, g gauges, census ledger.Census) {
	counts, oldest := map[ledger.State]int64{}, map[ledger.State]float64{}
	for _, c := range census.Pending {
		counts[c.State] = c.Count
		if !c.Since.IsZero() {
			oldest[c.State] = max(0, census.Now.Sub(c.Since).Seconds())
		}
	}
	for _, s := range ledger.States() {
		if s.Pending() {
			label := metric.WithAttributes(attribute.String("state", string(s)))
			o.ObserveInt64(g.pending, counts[s], label)
			o.ObserveFloat64(g.oldest, oldest[s], label)
		}
	}
	for _, c := range ledger.DeadClasses() {
		o.ObserveInt64(g.dead, census.Dead[c], metric.WithAttributes(attribute.String("class", string(c))))
	}
	p.perProvider(o, g.ready, census.Ready)
}

// perProvider shows a number for every configured provider; those of all others are added up.
func (p *picture) perProvider(o metric.Observer, g metric.Int64ObservableGauge, numbers map[string]int64) {
	var known, all int64
	for _, n := range numbers {
		all += n
	}
	for _, name := range p.providers {
		known += numbers[name]
		o.ObserveInt64(g, numbers[name], metric.WithAttributes(attribute.String("provider", name)))
	}
	if rest := all - known; rest != 0 {
		o.ObserveInt64(g, rest, metric.WithAttributes(attribute.String("provider", other)))
	}
}

// closedGates counts a gate as closed until a call has got through: between a closing and the call that
// tries it there are moments at which it would look open, and an alert would start over at each.
func closedGates(gates []ledger.Gate, now time.Time) map[string]int64 {
	closed := make(map[string]int64, len(gates))
	for _, g := range gates {
		if view := g.View(now); !view.Open || view.Probe {
			closed[g.Provider] = 1
		}
	}
	return closed
}

func widened(numbers map[string]int) map[string]int64 {
	wide := make(map[string]int64, len(numbers))
	for name, n := range numbers {
		wide[name] = int64(n)
	}
	return wide
}
