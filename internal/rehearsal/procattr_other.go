//go:build !linux

package rehearsal

import "syscall"

// childProcAttr is nil: only Linux can end a child process with its parent.
func childProcAttr() *syscall.SysProcAttr { return nil }
