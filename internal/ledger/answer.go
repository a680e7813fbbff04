package ledger

import "time"

// Answer bounds: a broker is never told to come back at once, nor to stay away for long.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 10 * time.Minute
)

// ReplyFor is the answer that follows from where an entry stands: a nack while it is its broker's to bring
// back, be it waiting or in somebody's hands, and while there is none; else an ack.
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

// ClampRetryAfter keeps what we tell others within 1 s and 10 min, in whole seconds, rounded up.
func ClampRetryAfter(d time.Duration) time.Duration {
	d = min(max(d, minRetryAfter), maxRetryAfter)
	return (d + time.Second - 1).Truncate(time.Second)
}
