package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/sendonce/sendonce/internal/ledger"
)

// other is where a label's value goes that is not in its closed set.
const other = "other"

// Instruments bear the names under which they are scraped, so that one word finds a metric in the code,
// in an alert and in OTLP. Only HTTP's own follow OpenTelemetry's conventions.
type figures struct {
	attempts    map[string]counter // by provider, then outcome
	lookups     map[string]counter // by provider, then answer
	retries     counter
	dead        counter
	sent        counter
	duplicates  counter
	conflicts   counter
	late        counter
	unavailable counter
	censusFails counter
	sweeps      counter
	redriven    counter

	delivery timer
	provider timer
	http     metric.Float64Histogram
}

// instruments makes figures; the first error stays.
type instruments struct {
	ctx   context.Context
	meter metric.Meter
	err   error
}

func newFigures(ctx context.Context, meter metric.Meter, providers []string) (*figures, error) {
	m := &instruments{ctx: ctx, meter: meter}
	f := &figures{
		attempts: make(map[string]counter, len(providers)+1),
		lookups:  make(map[string]counter, len(providers)+1),
		retries: m.counter("sendonce_retries_total", "Calls after which a further one was put on schedule, by what the call ran into.",
			"class", retryClasses()),
		dead: m.counter("sendonce_dead_total", "Entries that became dead letters here.", "class", words(ledger.DeadClasses())),
		sent: m.counter("sendonce_sent_total", "Entries that became sent here, by what proves it.", "receipt",
			[]string{receiptPresent, string(ledger.MissingUnread), string(ledger.MissingAssumed), string(ledger.MissingResolved)}),
		duplicates: m.counter("sendonce_duplicates_total", "Visits that changed nothing and called nobody.", "", nil),
		conflicts:  m.counter("sendonce_conflicts_total", "Visits that brought other content under a known identity.", "", nil),
		late: m.counter("sendonce_late_total", "What holders recorded that came back after their entry had moved on.", "kind",
			[]string{
				string(ledger.ReasonLateAcceptance), string(ledger.ReasonLateFailure),
				string(ledger.ReasonReplayed), string(ledger.ReasonPossibleSecondSend),
			}),
		unavailable: m.counter("sendonce_ledger_unavailable_total", "Visits of which nothing is known to be recorded.", "", nil),
		censusFails: m.counter("sendonce_census_failures_total", "Censuses that failed or took too long.", "", nil),
		sweeps:      m.counter("sendonce_sweeps_total", "Looks for holders that went silent.", "", nil),
		redriven: m.counter("sendonce_redriven_total", "Dead letters whose turn in a redrive came, by what it came to.", "result",
			append(words(ledger.Skips()), ledger.ItemReopened, ledger.ItemReread)),
		delivery: m.timer("sendonce_delivery_seconds", "How long a visit took, from its arrival to its answer.", "origin",
			[]string{string(ledger.OriginPush), string(ledger.OriginAPI), string(ledger.OriginWorker)}),
		provider: m.timer("sendonce_provider_seconds", "How long a call to a provider took.", "provider", providers),
		http:     m.histogram("http.server.request.duration", "How long a request took, by route pattern."),
	}
	for _, p := range providers {
		f.attempts[p], f.lookups[p] = m.attempts(p, true), m.lookups(p, true)
	}
	f.attempts[other], f.lookups[other] = m.attempts(other, false), m.lookups(other, false)
	return f, m.err
}

// attempts counts the calls to one provider. A call that was not made is none.
func (m *instruments) attempts(provider string, fromZero bool) counter {
	var outcomes []string
	for _, r := range ledger.Results() {
		if r != ledger.ResultNotCalled {
			outcomes = append(outcomes, r.String())
		}
	}
	c := m.instrument("sendonce_attempts_total", "Calls to providers, by what they proved.")
	return m.ofProvider(c, provider, "outcome", outcomes, fromZero)
}

// lookups counts the questions to one provider.
func (m *instruments) lookups(provider string, fromZero bool) counter {
	var answers []string
	for _, f := range ledger.Findings() {
		answers = append(answers, f.String())
	}
	c := m.instrument("sendonce_lookups_total", "Questions to providers whether they had taken a send, by what they said.")
	return m.ofProvider(c, provider, "answer", answers, fromZero)
}

func (m *instruments) ofProvider(c counter, provider, label string, values []string, fromZero bool) counter {
	c.series = series(label, values, attribute.String("provider", provider))
	if fromZero {
		c.zero(m.ctx)
	}
	return c
}

// receiptPresent is the label of what is sent with a receipt; the others are the reasons for its absence.
const receiptPresent = "present"

// retryClasses are the classes of a failure that another call may mend.
func retryClasses() []string {
	return words([]ledger.Class{ledger.ClassCredentials, ledger.ClassThrottled, ledger.ClassUnreachable, ledger.ClassUnknown})
}

// counter counts under one label of a closed set, or under none.
type counter struct {
	metric.Int64Counter
	series map[string]metric.MeasurementOption
}

func (m *instruments) instrument(name, help string) counter {
	c, err := m.meter.Int64Counter(name, metric.WithDescription(help))
	m.keep(err)
	return counter{Int64Counter: c}
}

// counter makes one whose series are all there from the start: an increase from nothing is not seen by a
// rate, so the first possible second send would go unnoticed.
func (m *instruments) counter(name, help, label string, values []string) counter {
	c := m.instrument(name, help)
	if label == "" {
		c.series = map[string]metric.MeasurementOption{"": metric.WithAttributeSet(attribute.NewSet())}
	} else {
		c.series = series(label, values)
	}
	c.zero(m.ctx)
	return c
}

func (c counter) zero(ctx context.Context) {
	for value, option := range c.series {
		if value != other {
			c.Add(ctx, 0, option)
		}
	}
}

// one counts one more.
func (c counter) one(ctx context.Context, value string) { c.Add(ctx, 1, pick(c.series, value)) }

// timer is a histogram of seconds under one label of a closed set.
type timer struct {
	metric.Float64Histogram
	series map[string]metric.MeasurementOption
}

func (m *instruments) timer(name, help, label string, values []string) timer {
	return timer{m.histogram(name, help), series(label, values)}
}

func (m *instruments) histogram(name, help string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithUnit("s"),
		// Commits take milliseconds, providers up to the half minute of a lease.
		metric.WithExplicitBucketBoundaries(.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	m.keep(err)
	return h
}

func (t timer) took(ctx context.Context, value string, d time.Duration) {
	t.Record(ctx, d.Seconds(), pick(t.series, value))
}

func (m *instruments) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

// series are the only label sets that an instrument may have.
func series(label string, values []string, fixed ...attribute.KeyValue) map[string]metric.MeasurementOption {
	all := make(map[string]metric.MeasurementOption, len(values)+1)
	for _, v := range append([]string{other}, values...) {
		all[v] = metric.WithAttributeSet(attribute.NewSet(append(fixed[:len(fixed):len(fixed)], attribute.String(label, v))...))
	}
	return all
}

func pick(all map[string]metric.MeasurementOption, value string) metric.MeasurementOption {
	if o, ok := all[value]; ok {
		return o
	}
	return all[other]
}

func words[W ~string](all []W) []string {
	plain := make([]string, len(all))
	for i, w := range all {
		plain[i] = string(w)
	}
	return plain
}
