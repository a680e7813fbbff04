package cli

import "syscall"

// dependent makes a child end with its parent, however that ends.
func dependent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
