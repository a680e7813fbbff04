package ledger

import "time"

// Bounds of a reply's RetryAfter: a broker is never told to redeliver at once, nor to wait for long.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 10 * time.Minute
)

// ReplyFor returns the reply that follows from an entry's state: a nack if there is no entry, or while its broker is to
// redeliver it, whether it is waiting or sending; else an ack.
func ReplyFor(e Entry, now time.Time) Reply {
	switch {
	case e.Absent():
		return Reply{RetryAfter: minRetryAfter}
	case e.State == Sending && e.Owner == OwnerBroker:
		return Reply{Entry: e, RetryAfter: ClampRetryAfter(e.LeaseUntil.On(now).Sub(now))}
	case e.State == Waiting && e.Owner == OwnerBroker:
		return Reply{Entry: e, RetryAfter: ClampRetryAfter(e.Due.On(now).Sub(now))}
	default:
		return Reply{Entry: e, Ack: true}
	}
}

// ClampRetryAfter limits a Retry-After to between 1 s and 10 min, in whole seconds, rounded up.
func ClampRetryAfter(d time.Duration) time.Duration {
	d = min(max(d, minRetryAfter), maxRetryAfter)
	return (d + time.Second - 1).Truncate(time.Second)
}
