package reconcile

import (
	"context"

	"github.com/sendonce/sendonce/internal/ledger"
)

const (
	skipLimit    = 1024 // entries that one pass skips because they failed before
	retrySkipped = 8    // passes after which skipped entries are tried again
)

// skipList remembers the entries that failed, from one pass to the next, so that they do not keep the others from their
// turn: the caller lists that many more entries, and those on the list are skipped for some passes. The zero value is
// ready to use; it is not safe for concurrent use.
type skipList struct {
	passes int
	failed map[ledger.Identity]bool
}

// count returns how many entries failed in the last pass.
func (s *skipList) count() int { return len(s.failed) }

// each is one pass: it calls do for each entry that is not to be skipped. It returns how many calls succeeded, and the
// last error.
func (s *skipList) each(ctx context.Context, ids []ledger.Identity, do func(context.Context, ledger.Identity) error) (succeeded int, last error) {
	s.passes++
	retry := s.passes%retrySkipped == 0
	failing := make(map[ledger.Identity]bool)
	for _, id := range ids {
		if ctx.Err() != nil {
			return succeeded, last
		}
		failed := s.failed[id] && !retry
		if !failed {
			if err := do(ctx, id); err != nil {
				failed, last = true, err
			} else {
				succeeded++
			}
		}
		if failed && len(failing) < skipLimit {
			failing[id] = true
		}
	}
	s.failed = failing
	return succeeded, last
}
