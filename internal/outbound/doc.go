// Package outbound is the one HTTP client with the manners of a sender.
//
// A sender must know what a failed call proves, so [Client.Do] hands back facts and never a bare error:
// whether the request was given to a connection at all, how often, what was answered, and in one word of
// a closed set what went wrong. An error's text cannot tell these apart: "context deadline exceeded"
// stands for a request that waited in a queue as well as for one that was carried out.
//
// Invariants:
//
//   - one call is at most one request on the wire: GetBody is cleared, so that net/http cannot replay a
//     POST on its own (net/http Request.isReplayable), no redirect is followed, and only HTTP/1.1 is
//     spoken, since HTTP/2 replays on some resets without being asked to;
//   - everything read from a peer is bounded, and nothing is decompressed on the quiet;
//   - a certificate that does not verify is never accepted, and no proxy is taken from the environment.
//
// What it does not do: it retries nothing, sets no idempotency key, and knows no provider's dialect.
package outbound
