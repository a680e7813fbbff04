//go:build unix

package crashpoint

import (
	"os"
	"os/signal"
	"syscall"
)

// kill ends this process as a crash does, and does not return.
func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// stop stops the whole process, and returns once it has been continued. It waits for the signal that says
// so: another thread may be the one that takes the first, and this one would run on for a moment.
func stop() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
}
