// Package outbound is the HTTP client for all requests that must not be repeated by accident.
//
// A sender must know what a failed call proves, so [Client.Do] returns facts and never a bare error: whether the
// request was written to a connection at all, to how many, what the response was, and the cause of a failure from a
// closed set. The text of an error cannot distinguish these: "context deadline exceeded" is the error of a request
// that only waited in a queue as well as of one that was carried out.
//
// Invariants:
//
//   - one call is at most one request on the wire: GetBody is cleared, so that net/http cannot replay a
//     POST on its own (net/http Request.isReplayable), no redirect is followed, and only HTTP/1.1 is
//     used, since HTTP/2 replays requests after some resets on its own;
//   - a connection is used for one call, so that a second response to one request is never taken for the
//     response to the next, and no request is lost on a connection that the peer has just closed;
//   - every call ends at its deadline, whatever the peer does, and leaves no connection and no goroutine
//     behind; a connection that the peer switches to another protocol is closed unread;
//   - everything read from a peer is limited in size, and nothing is decompressed implicitly;
//   - a certificate that does not verify is never accepted, and no proxy is taken from the environment.
//
// What it does not do: it retries nothing, sets no idempotency key, and knows no provider's protocol.
package outbound
