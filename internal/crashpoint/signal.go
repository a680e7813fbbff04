//go:build unix

package crashpoint

import (
	"os"
	"os/signal"
	"syscall"
)

// kill ends this process like a crash, and does not return.
func kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// stop stops the whole process, and returns when it is continued. It waits for SIGCONT: another thread may be the one
// that receives SIGSTOP, and this one would run on for a moment.
func stop() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-continued
}
