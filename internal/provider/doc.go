// Package provider defines the interface of a provider adapter, classifies the responses of HTTP providers, and
// holds the [Pool] of configured providers, each with its rate and concurrency limits and its gate.
//
// Invariants:
//
//   - an adapter returns a [ledger.Outcome], never a bare error, and makes at most one request per call;
//   - a response that the class table does not list is unknown, never "failed";
//   - on each replica a provider has no more calls in flight than its concurrency limit, and starts them no
//     faster than its rate limit;
//   - a replica starts no call while it knows the gate to be closed; when a gate half-opens, a single call
//     across all replicas probes it first.
//
// What it does not do: it retries nothing, makes no decision about an entry, and imports no adapter. The adapters
// are the packages below this one, and do not import each other.
package provider
