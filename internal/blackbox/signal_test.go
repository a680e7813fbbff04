package blackbox

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestSignal_SecondOneEndsAtOnce sends two signals: the first one lets a call finish, the second ends the
// process at once. What was in flight is then finished by the next process.
func TestSignal_SecondOneEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.setModes(providertest.AcceptStall, providertest.OK)
	c := configure(newSQLite(t), p)
	g := serve(t, c)
	go func() {
		_, _ = g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(rem1Document))
	}()
	waitUntil(t, 10*time.Second, "the provider is called", func() bool { return p.counts().Calls == 1 })
	g.signal(syscall.SIGTERM)
	waitUntil(t, 10*time.Second, "it logs the shutdown", func() bool {
		_, found := g.log.find(`"msg":"shutting down"`)
		return found
	})
	g.signal(syscall.SIGTERM)
	select {
	case <-g.ended:
	case <-time.After(time.Second): // the call alone would take longer
		t.Fatal("it did not end")
	}
	if g.exited == nil {
		t.Error("its exit code is 0")
	}
	restarted := serve(t, c)
	waitUntil(t, 20*time.Second, "its redelivery is acked", func() bool { return restarted.push(rem1Document).status == http.StatusOK })
	if n := p.counts(); n.Accepts != 2 || len(n.Keys) != 1 {
		t.Errorf("%d accepted under %d keys: a repeat must carry the first key", n.Accepts, len(n.Keys))
	}
}
