// Package telemetry writes log lines, metrics and traces: one log line for each delivery, API request and
// worker task, and one more when a send settles after its delivery or request was answered.
//
// It wraps the interfaces of the other packages, so none of them depends on it, and it is the only package
// that imports OpenTelemetry's SDK.
//
// Invariants:
//
//   - no recipient, no content and no token is written anywhere: fields are picked one by one, and free
//     text (an error, a provider's code) is redacted of what the message carried;
//   - label values come from closed sets, whatever a peer sends: see [counter] and [timer];
//   - a series that an alert relies on exists from the start, and stale gauges are not shown: they vanish
//     from the scrape when counting the backlog fails, and sendonce_backlog_age_seconds grows;
//   - a wrapper changes neither a result nor an error, and lets a panic pass.
//
// What it does not do: it decides nothing, retries nothing, and never makes a delivery fail or wait.
package telemetry
