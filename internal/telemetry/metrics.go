package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sendonce/sendonce/internal/ledger"
)

// other replaces a label value that is not in its closed set.
const other = "other"

// metrics are the counters and histograms. They have the names under which they are scraped, so that one
// search finds a metric in the code, in an alert and in OTLP; only HTTP's follows OpenTelemetry's conventions.
type metrics struct {
	attempts        map[string]counter // by provider, then outcome
	lookups         map[string]counter // by provider, then result
	retries         counter
	dead            counter
	sent            counter
	duplicates      counter
	conflicts       counter
	late            counter
	unavailable     counter
	backlogFailures counter
	sweeps          counter
	redriven        counter

	delivery timer
	provider timer
	http     metric.Float64Histogram
}

// instrumentBuilder creates instruments and keeps the first error.
type instrumentBuilder struct {
	ctx   context.Context
	meter metric.Meter
	err   error
}

func newMetrics(ctx context.Context, meter metric.Meter, providers []string) (*metrics, error) {
	b := &instrumentBuilder{ctx: ctx, meter: meter}
	m := &metrics{
		attempts: make(map[string]counter, len(providers)+1),
		lookups:  make(map[string]counter, len(providers)+1),
		retries: b.counter("sendonce_retries_total", "Provider calls after which a retry was scheduled, by class of the failure.",
			"class", retryClasses()),
		dead: b.counter("sendonce_dead_total", "Entries that became dead letters on this replica, by class.", "class", stringsOf(ledger.DeadClasses())),
		sent: b.counter("sendonce_sent_total", "Entries that became sent on this replica, by receipt: present, or why there is none.", "receipt",
			[]string{receiptPresent, string(ledger.MissingUnreadable), string(ledger.MissingAssumed), string(ledger.MissingResolved)}),
		duplicates: b.counter("sendonce_duplicates_total", "Deliveries, requests and worker tasks that changed nothing and called no provider.", "", nil),
		conflicts:  b.counter("sendonce_conflicts_total", "Deliveries and requests with different content under a known identity.", "", nil),
		late: b.counter("sendonce_late_total", "Results recorded by a holder after its entry had changed, by kind.", "kind",
			[]string{
				string(ledger.ReasonLateAcceptance), string(ledger.ReasonLateFailure),
				string(ledger.ReasonReplayed), string(ledger.ReasonPossibleSecondSend),
			}),
		unavailable:     b.counter("sendonce_ledger_unavailable_total", "Deliveries, requests, worker tasks and settlements that failed and may not be recorded.", "", nil),
		backlogFailures: b.counter("sendonce_backlog_failures_total", "Backlog counts that failed or timed out.", "", nil),
		sweeps:          b.counter("sendonce_sweeps_total", "Sweeps for expired leases that finished.", "", nil),
		redriven: b.counter("sendonce_redriven_total", "Redrive items processed, by result.", "result",
			append(stringsOf(ledger.SkipReasons()), ledger.ItemRedriven, ledger.ItemReparsed)),
		delivery: b.timer("sendonce_delivery_seconds", "Duration of a delivery, API request or worker task, from arrival to reply.", "origin",
			[]string{string(ledger.OriginPush), string(ledger.OriginAPI), string(ledger.OriginWorker)}),
		provider: b.timer("sendonce_provider_seconds", "Duration of a call to a provider, lookups included.", "provider", providers),
		http:     b.histogram("http.server.request.duration", "Duration of HTTP requests, by route pattern."),
	}
	for _, p := range providers {
		m.attempts[p], m.lookups[p] = b.attempts(p, true), b.lookups(p, true)
	}
	m.attempts[other], m.lookups[other] = b.attempts(other, false), b.lookups(other, false)
	return m, b.err
}

// attempts returns the counter of calls to one provider. A call that was not made is not counted.
func (b *instrumentBuilder) attempts(provider string, fromZero bool) counter {
	var outcomes []string
	for _, r := range ledger.Results() {
		if r != ledger.ResultNotCalled {
			outcomes = append(outcomes, r.String())
		}
	}
	c := b.instrument("sendonce_attempts_total", "Calls to providers, by outcome.")
	return b.ofProvider(c, provider, "outcome", outcomes, fromZero)
}

// lookups returns the counter of lookups at one provider.
func (b *instrumentBuilder) lookups(provider string, fromZero bool) counter {
	var results []string
	for _, r := range ledger.LookupResults() {
		results = append(results, r.String())
	}
	c := b.instrument("sendonce_lookups_total", "Lookups of a send at a provider, by result.")
	return b.ofProvider(c, provider, "result", results, fromZero)
}

func (b *instrumentBuilder) ofProvider(c counter, provider, label string, values []string, fromZero bool) counter {
	c.series = series(label, values, attribute.String("provider", provider))
	if fromZero {
		c.zero(b.ctx)
	}
	return c
}

// receiptPresent is the label value of a send with a receipt; the other values are the reasons for its absence.
const receiptPresent = "present"

// retryClasses are the classes of failures that are retried.
func retryClasses() []string {
	return stringsOf([]ledger.Class{
		ledger.ClassCredentials, ledger.ClassThrottled, ledger.ClassUnreachable, ledger.ClassRecipient, ledger.ClassUnknown,
	})
}

// counter is a counter with one label from a closed set, or with none.
type counter struct {
	metric.Int64Counter
	series map[string]metric.MeasurementOption
}

func (b *instrumentBuilder) instrument(name, help string) counter {
	c, err := b.meter.Int64Counter(name, metric.WithDescription(help))
	b.setErr(err)
	return counter{Int64Counter: c}
}

// counter creates a counter whose series all exist from the start: rate() does not see an increase from an
// absent series, so the first possible second send would go unnoticed.
func (b *instrumentBuilder) counter(name, help, label string, values []string) counter {
	c := b.instrument(name, help)
	if label == "" {
		c.series = map[string]metric.MeasurementOption{"": metric.WithAttributeSet(attribute.NewSet())}
	} else {
		c.series = series(label, values)
	}
	c.zero(b.ctx)
	return c
}

func (c counter) zero(ctx context.Context) {
	for value, option := range c.series {
		if value != other {
			c.Add(ctx, 0, option)
		}
	}
}

// inc adds one to the series of a label value.
func (c counter) inc(ctx context.Context, value string) { c.Add(ctx, 1, seriesFor(c.series, value)) }

// timer is a histogram of seconds with one label from a closed set.
type timer struct {
	metric.Float64Histogram
	series map[string]metric.MeasurementOption
}

func (b *instrumentBuilder) timer(name, help, label string, values []string) timer {
	return timer{b.histogram(name, help), series(label, values)}
}

func (b *instrumentBuilder) histogram(name, help string) metric.Float64Histogram {
	h, err := b.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"),
		// A commit takes milliseconds, a provider up to the 30 s of a lease.
		metric.WithExplicitBucketBoundaries(.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	b.setErr(err)
	return h
}

func (t timer) observe(ctx context.Context, value string, d time.Duration) {
	t.Record(ctx, d.Seconds(), seriesFor(t.series, value))
}

func (b *instrumentBuilder) setErr(err error) {
	if b.err == nil {
		b.err = err
	}
}

// series returns the only label sets that an instrument may have.
func series(label string, values []string, fixed ...attribute.KeyValue) map[string]metric.MeasurementOption {
	all := make(map[string]metric.MeasurementOption, len(values)+1)
	for _, v := range append([]string{other}, values...) {
		all[v] = metric.WithAttributeSet(attribute.NewSet(append(fixed[:len(fixed):len(fixed)], attribute.String(label, v))...))
	}
	return all
}

func seriesFor(all map[string]metric.MeasurementOption, value string) metric.MeasurementOption {
	if o, ok := all[value]; ok {
		return o
	}
	return all[other]
}

func stringsOf[S ~string](values []S) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}
