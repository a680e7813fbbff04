package rehearsal

import "syscall"

// childProcAttr makes a child process end with its parent, however that ends.
func childProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
