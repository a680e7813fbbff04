// Package telemetry tells what happens: one log line for each visit to an entry (and one more when a send
// settles that its visit did not wait for), metrics, and traces.
//
// It wraps what the other rooms do by shape, so none of them knows of it, and it is the only room that
// imports OpenTelemetry's SDK.
//
// Invariants:
//
//   - no recipient, no content and no token is written anywhere: fields are picked one by one, and free
//     text (an error, a provider's code) is struck of what came with the message;
//   - label values come from closed sets, whatever a peer sends: see [counter] and [timer];
//   - a series that an alert relies on is there from the start, and a picture that is not fresh is not
//     shown: gauges vanish when the census fails, and sendonce_census_age_seconds grows;
//   - a wrapper changes neither an answer nor an error, and lets a panic pass.
//
// What it does not do: it decides nothing, retries nothing, and never makes a delivery fail or wait.
package telemetry
