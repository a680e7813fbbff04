// Package provider is the gateway's side of those who carry reminders on: what an adapter must be, what
// the answer of an HTTP provider proves, and the [Fleet] of configured providers with the lane before each.
//
// Invariants:
//
//   - an adapter returns a [ledger.Outcome], never a bare error, and makes at most one request a call;
//   - an answer that the class table does not know is unknown, never "failed";
//   - a lane never has more calls in flight than its concurrency, nor begins them faster than its rate,
//     nor any while its gate is closed, but for the one that tries, over all replicas.
//
// What it does not do: it retries nothing, decides about no entry, and knows no adapter; the packages
// beneath it are the adapters, and do not know each other.
package provider
