//go:build !unix

package sqlite

import (
	"errors"
	"os"
)

// lock always fails: without a lock that ends with its process, two processes could send the same reminder.
func lock(string) (*os.File, error) {
	return nil, errors.New("sqlite: not supported on this system: it has no flock")
}

func lockFile(*os.File) error { return nil }
