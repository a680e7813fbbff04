package blackbox

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestASecondSignalEndsAtOnce : the first one lets a send finish; whoever sends a second does not want to
// wait. What was in flight is then found by the next process.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.plays(providertest.AcceptStall, providertest.OK)
	c := configure(embedded(t), p)
	g := serve(t, c)
	go func() {
		_, _ = g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(rem1Document))
	}()
	until(t, 10*time.Second, "the provider is called", func() bool { return p.counts().Calls == 1 })
	g.signal(syscall.SIGTERM)
	until(t, 10*time.Second, "it says that it is ending", func() bool {
		_, said := g.log.find(`"msg":"ending"`)
		return said
	})
	g.signal(syscall.SIGTERM)
	select {
	case <-g.ended:
	case <-time.After(time.Second): // the call alone would take longer
		t.Fatal("it did not end")
	}
	if g.exited == nil {
		t.Error("it ended as if all were well")
	}
	again := serve(t, c)
	until(t, 20*time.Second, "its redelivery is acked", func() bool { return again.push(rem1Document).status == http.StatusOK })
	if n := p.counts(); n.Accepts != 2 || len(n.Keys) != 1 {
		t.Errorf("%d accepted under %d keys: a repeat must carry the first key", n.Accepts, len(n.Keys))
	}
}
