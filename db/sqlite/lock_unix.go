//go:build unix

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// lock locks the lock file of a database for this process. The kernel releases the lock however the process ends, so
// a file that is left behind locks nobody out.
func lock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("sqlite: lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s is locked", ErrInUse, path)
	}
	return nil, fmt.Errorf("sqlite: lock %s: %w", path, err)
}

// lockFile locks the database file itself, and refuses one with a second name: SQLite would keep another log for it.
// Only Linux keeps the locks of flock apart from those that SQLite takes on the same file.
func lockFile(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink > 1 {
		return fmt.Errorf("sqlite: %s has %d names (hard links), and another process could serve it by another one; keep one name",
			file.Name(), stat.Nlink)
	}
	if runtime.GOOS != "linux" {
		return nil
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("%w: %s is locked", ErrInUse, file.Name())
	}
	if err != nil {
		return fmt.Errorf("sqlite: lock %s: %w", file.Name(), err)
	}
	return nil
}
