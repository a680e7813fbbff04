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

// scope names our own instruments and spans.
const scope = "github.com/sendonce/sendonce/internal/telemetry"

// Options are what telemetry needs to know.
type Options struct {
	Version   string       // of this build
	Providers []string     // the configured ones; any other counts as "other"
	Logger    *slog.Logger // see [NewLogger]

	// OTLPTraces and OTLPMetrics switch the exporters on that speak OTLP over HTTP. Where they send, with
	// which headers, keys and compression, how often, and what is sampled, the exporters and the SDK read
	// from the standard OTEL_* variables themselves
	// (https://opentelemetry.io/docs/specs/otel/protocol/exporter/), so nothing of that comes through here.
	// Switch them on where OTEL_EXPORTER_OTLP_ENDPOINT, or the one with TRACES_ or METRICS_ in its name, is set.
	OTLPTraces  bool
	OTLPMetrics bool
}

// Telemetry is the running set-up. Its methods are safe for concurrent use.
type Telemetry struct {
	log      *slog.Logger
	registry *prometheus.Registry
	traces   *sdktrace.TracerProvider
	metrics  *sdkmetric.MeterProvider
	tracer   trace.Tracer
	figures  *figures
	picture  *picture
}

// sinks are where spans and metrics go besides the scrape.
type sinks struct {
	spans   []sdktrace.SpanProcessor
	readers []sdkmetric.Reader
}

// Start sets everything up; what was set up before an error is shut down again. It dials nobody: a
// collector that is away costs spans, never a delivery.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	var to sinks
	if o.OTLPTraces {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("telemetry: traces over OTLP: %w", err)
		}
		to.spans = append(to.spans, sdktrace.NewBatchSpanProcessor(exporter))
	}
	if o.OTLPMetrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("telemetry: metrics over OTLP: %w", err), to.shutdown(ctx))
		}
		to.readers = append(to.readers, sdkmetric.NewPeriodicReader(exporter))
	}
	t, err := assemble(ctx, o, to)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("telemetry: %w", err), to.shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		t.log.Warn("telemetry", "error", redact(err.Error()))
	}))
	return t, nil
}

func assemble(ctx context.Context, o Options, to sinks) (*Telemetry, error) {
	what, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "sendonce"),
		attribute.String("service.version", o.Version),
	), resource.WithFromEnv()) // what the operator says goes last, and wins
	if err != nil {
		return nil, fmt.Errorf("resource: %w", err)
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
		traces:   sdktrace.NewTracerProvider(traceOptions(what, to.spans)...),
		metrics:  sdkmetric.NewMeterProvider(metricOptions(what, append(to.readers, scrape))...),
	}
	t.tracer = t.traces.Tracer(scope)
	meter := t.metrics.Meter(scope)
	if t.figures, err = newFigures(ctx, meter, o.Providers); err == nil {
		t.picture, err = newPicture(meter, o.Providers)
	}
	if err != nil {
		return nil, fmt.Errorf("instruments: %w", err)
	}
	return t, nil
}

func traceOptions(what *resource.Resource, processors []sdktrace.SpanProcessor) []sdktrace.TracerProviderOption {
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxWord
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(what), sdktrace.WithRawSpanLimits(limits)}
	for _, p := range processors {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	if len(processors) == 0 {
		// Nobody reads spans, so none is recorded; trace ids still are made and passed on, and a caller's
		// own decision to sample reaches the provider unchanged.
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	}
	return options
}

func metricOptions(what *resource.Resource, readers []sdkmetric.Reader) []sdkmetric.Option {
	options := []sdkmetric.Option{sdkmetric.WithResource(what)}
	for _, r := range readers {
		options = append(options, sdkmetric.WithReader(r))
	}
	return options
}

func (s sinks) shutdown(ctx context.Context) error {
	var errs []error
	for _, p := range s.spans {
		errs = append(errs, p.Shutdown(ctx))
	}
	for _, r := range s.readers {
		errs = append(errs, r.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// Shutdown sends what is still queued, for as long as ctx lasts, and ends the exporters.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if err := errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx)); err != nil {
		return fmt.Errorf("telemetry: shut down: %w", err)
	}
	return nil
}

// Handler answers a scrape in Prometheus' text format. It belongs on the operations listener.
//
// OpenMetrics stays off: there sendonce_dead, a gauge, and sendonce_dead_total, a counter, would be two
// families of one name (https://prometheus.io/docs/specs/om/open_metrics_spec/#metricfamily).
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// TracerProvider is for instrumentation that others bring, such as a database driver's.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.traces }
