// Package provider is the gateway's side of those who carry reminders on: what an adapter must be, what
// the answer of an HTTP provider proves, and the [Fleet] of configured providers with the lane before each.
//
// Invariants:
//
//   - an adapter returns a [ledger.Outcome], never a bare error, and makes at most one request a call;
//   - an answer that the class table does not know is unknown, never "failed";
//   - on each replica a lane has no more calls in flight than its concurrency, and begins them no faster than
//     its rate;
//   - while a gate is closed, as far as a replica has heard, it begins no call; once it opens again, one
//     delivery of all replicas tries it first.
//
// What it does not do: it retries nothing, decides about no entry, and knows no adapter; the packages
// beneath it are the adapters, and do not know each other.
package provider
