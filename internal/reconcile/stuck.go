package reconcile

import (
	"context"

	"github.com/sendonce/sendonce/internal/ledger"
)

const (
	stuckLimit = 1024 // entries that a round passes over, since the last could not help them
	retryStuck = 8    // rounds after which it tries them again
)

// stuck remembers from round to round what could not be helped, so that it does not hold up what can: whoever
// lists work asks for so many more, and they are passed over for some rounds. The zero value is ready; it is
// not for concurrent use.
type stuck struct {
	round int
	known map[ledger.Identity]bool
}

func (s *stuck) count() int { return len(s.known) }

// each does what is to be done for each entry that is not known to be stuck. It answers how many that helped,
// and the last error.
func (s *stuck) each(ctx context.Context, ids []ledger.Identity, do func(context.Context, ledger.Identity) error) (helped int, last error) {
	s.round++
	again := s.round%retryStuck == 0
	still := make(map[ledger.Identity]bool)
	for _, id := range ids {
		if ctx.Err() != nil {
			return helped, last
		}
		failed := s.known[id] && !again
		if !failed {
			if err := do(ctx, id); err != nil {
				failed, last = true, err
			} else {
				helped++
			}
		}
		if failed && len(still) < stuckLimit {
			still[id] = true
		}
	}
	s.known = still
	return helped, last
}
