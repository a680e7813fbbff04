package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of this package's instruments and spans.
const scope = "github.com/sendonce/sendonce/internal/telemetry"

// Options configure [Start].
type Options struct {
	Version   string       // of this build
	Providers []string     // the configured ones; any other is labelled "other"
	Logger    *slog.Logger // see [NewLogger]

	// OTLPTraces and OTLPMetrics enable the exporters over OTLP/HTTP. The exporters and the SDK read the
	// endpoint, headers, keys, compression, interval and sampling from the standard OTEL_* variables
	// themselves (https://opentelemetry.io/docs/specs/otel/protocol/exporter/), so none of that is an option.
	// Enable them where OTEL_EXPORTER_OTLP_ENDPOINT, or its variant with TRACES_ or METRICS_, is set.
	OTLPTraces  bool
	OTLPMetrics bool
}

// Telemetry holds the logger, the instruments and the providers of spans and metrics. Its methods are safe for concurrent use.
type Telemetry struct {
	log      *slog.Logger
	registry *prometheus.Registry
	traces   *sdktrace.TracerProvider
	meters   *sdkmetric.MeterProvider
	tracer   trace.Tracer
	metrics  *metrics
	gauges   *gauges
}

// exporters receive spans and metrics in addition to the Prometheus scrape.
type exporters struct {
	spans   []sdktrace.SpanProcessor
	readers []sdkmetric.Reader
}

// Start creates the instruments and exporters; after an error, what was created before it is shut down
// again. It opens no connection: an unreachable collector costs spans, never a delivery.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // first, for the exporters report a bad setting here
		if errors.Is(err, resource.ErrPartialResource) {
			return // said once by assemble, without the values
		}
		o.Logger.Warn("telemetry: OpenTelemetry error", "error", redact(err.Error()))
	}))
	var exp exporters
	if o.OTLPTraces {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("telemetry: traces over OTLP: %w", err)
		}
		exp.spans = append(exp.spans, sdktrace.NewBatchSpanProcessor(exporter))
	}
	if o.OTLPMetrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("telemetry: metrics over OTLP: %w", err), exp.shutdown(ctx))
		}
		exp.readers = append(exp.readers, sdkmetric.NewPeriodicReader(exporter))
	}
	t, err := assemble(ctx, o, exp)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), exp.shutdown(ctx))
	}
	return t, nil
}

func assemble(ctx context.Context, o Options, exp exporters) (*Telemetry, error) {
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "sendonce"),
		attribute.String("service.version", o.Version),
	), resource.WithFromEnv()) // the operator's settings come last, and override
	if err != nil { // the resource has what could be read: a label never stops a delivery
		o.Logger.Warn("telemetry: " + badResource)
	}
	registry := prometheus.NewRegistry()
	scrape, err := otelprom.New(
		otelprom.WithRegisterer(registry),
		otelprom.WithoutScopeInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
	)
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	t := &Telemetry{
		log:      o.Logger,
		registry: registry,
		traces:   sdktrace.NewTracerProvider(traceOptions(res, exp.spans)...),
		meters:   sdkmetric.NewMeterProvider(metricOptions(res, append(exp.readers, scrape))...),
	}
	t.tracer = t.traces.Tracer(scope)
	meter := t.meters.Meter(scope)
	if t.metrics, err = newMetrics(ctx, meter, o.Providers); err == nil {
		t.gauges, err = newGauges(meter, o.Providers)
	}
	if err != nil {
		return nil, fmt.Errorf("instruments: %w", err)
	}
	return t, nil
}

const badResource = "OTEL_RESOURCE_ATTRIBUTES is valid in part only: write key=value pairs with commas between them; what could be read is used"

// Warnings returns what is wrong with the labels that the environment gives to spans and metrics. [Start] logs it.
func Warnings(ctx context.Context) []string {
	if _, err := resource.New(ctx, resource.WithFromEnv()); err != nil {
		return []string{badResource}
	}
	return nil
}

func traceOptions(res *resource.Resource, processors []sdktrace.SpanProcessor) []sdktrace.TracerProviderOption {
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxField
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(res), sdktrace.WithRawSpanLimits(limits)}
	for _, p := range processors {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	if len(processors) == 0 {
		// No exporter reads spans, so none is recorded; trace ids are still created and propagated, and a
		// caller's own sampling decision reaches the provider unchanged.
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	}
	return options
}

func metricOptions(res *resource.Resource, readers []sdkmetric.Reader) []sdkmetric.Option {
	options := []sdkmetric.Option{sdkmetric.WithResource(res)}
	for _, r := range readers {
		options = append(options, sdkmetric.WithReader(r))
	}
	return options
}

func (e exporters) shutdown(ctx context.Context) error {
	var errs []error
	for _, p := range e.spans {
		errs = append(errs, p.Shutdown(ctx))
	}
	for _, r := range e.readers {
		errs = append(errs, r.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// Shutdown exports what is still queued, until ctx ends, and stops the exporters.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := errors.Join(t.traces.Shutdown(ctx), t.meters.Shutdown(ctx)); err != nil {
		return fmt.Errorf("telemetry: shut down: %w", err)
	}
	return nil
}

// Handler serves a scrape in Prometheus' text format. It belongs on the operations listener.
//
// OpenMetrics stays off: in that format sendonce_dead, a gauge, and sendonce_dead_total, a counter, would be two
// families of one name (https://prometheus.io/docs/specs/om/open_metrics_spec/#metricfamily).
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// TracerProvider returns the provider for third-party instrumentation, such as a database driver's.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.traces }
