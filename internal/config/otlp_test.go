package config

import (
	"strings"
	"testing"
)

func TestReadOTLP_StandardSwitchesWorkAndWhatIsNotSupportedIsSaid(t *testing.T) {
	for _, c := range []struct {
		env             string
		traces, metrics bool
		warning         string // of the only one; empty for none
	}{
		{"", false, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", true, true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4318", true, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=true", false, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=TRUE", false, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=false", true, true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=1", true, true, "OTEL_SDK_DISABLED"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_EXPORTER=none", false, true, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_METRICS_EXPORTER=none", true, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_METRICS_EXPORTER=prometheus", true, false, ""},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_EXPORTER=otlp,console", true, true, "OTEL_TRACES_EXPORTER"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_EXPORTER=zipkin", false, true, "OTEL_TRACES_EXPORTER"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", true, true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, false, "OTEL_EXPORTER_OTLP_PROTOCOL"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/json", true, false, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", false, false, ""},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = value
		}
		got := readOTLP(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		said := strings.Join(got.Warnings, "\n")
		if got.Traces != c.traces || got.Metrics != c.metrics || (said == "") != (c.warning == "") || !strings.Contains(said, c.warning) {
			t.Errorf("%s: %+v", c.env, got)
		}
	}
}
