package config

import "strings"

// readOTLP enables a signal if its endpoint is set and the standard switches leave it on
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). What is not supported disables
// the signal with a warning, and never stops a delivery.
func readOTLP(env func(string) (string, bool)) OTLP {
	value := func(names ...string) (name, text string) {
		for _, name = range names {
			if text, _ = env(name); strings.TrimSpace(text) != "" {
				return name, strings.ToLower(strings.TrimSpace(text))
			}
		}
		return "", ""
	}
	var o OTLP
	_, disabled := value("OTEL_SDK_DISABLED")
	if disabled != "" && disabled != "true" && disabled != "false" {
		o.Warnings = append(o.Warnings, "OTEL_SDK_DISABLED is neither true nor false; it counts as false")
	}
	exported := func(signal string) bool {
		endpoint, _ := value("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
		if endpoint == "" || disabled == "true" {
			return false
		}
		no := strings.ToLower(signal) + " are not exported to " + endpoint + ": "
		name, exporters := value("OTEL_" + signal + "_EXPORTER")
		on := name == ""
		for exporter := range strings.SplitSeq(exporters, ",") {
			switch strings.TrimSpace(exporter) {
			case "otlp":
				on = true
			case "", "none", "prometheus": // /metrics is always served
			default:
				o.Warnings = append(o.Warnings, name+" names an exporter other than otlp and none, which is not supported")
			}
		}
		if !on {
			return false
		}
		name, protocol := value("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
		if name != "" && protocol != "http/protobuf" {
			o.Warnings = append(o.Warnings, no+name+" is not http/protobuf, the only protocol that is supported; "+
				"write http/protobuf, and the collector's endpoint for it, usually on port 4318")
			return false
		}
		return true
	}
	o.Traces, o.Metrics = exported("TRACES"), exported("METRICS")
	return o
}
