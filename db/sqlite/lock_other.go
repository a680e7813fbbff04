//go:build !unix

package sqlite

import (
	"errors"
	"os"
)

// lock refuses: without a lock that ends with its process, two could send the same reminder.
func lock(string) (*os.File, error) {
	return nil, errors.New("sqlite: not served on this system: it has no flock")
}
