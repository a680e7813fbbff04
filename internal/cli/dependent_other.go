//go:build !linux

package cli

import "syscall"

// dependent would make a child end with its parent, however that ends; only Linux knows how.
func dependent() *syscall.SysProcAttr { return nil }
