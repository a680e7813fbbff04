//go:build unix

package crashpoint

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// flush is how long net/http may take to hand over a request that it calls written: it means its own buffer.
const flush = 50 * time.Millisecond

// Call passes the points of one call to a provider.
func (p *Points) Call(ctx context.Context, send func(context.Context) ledger.Outcome) ledger.Outcome {
	p.Pass(Claimed)
	var wrote sync.WaitGroup // in which the request goes out, and Written is passed
	answered := make(chan struct{})
	seen := sync.OnceFunc(func() {
		close(answered)
		wrote.Wait()
	})
	defer seen() // what hung up on us says nothing before
	return send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.Pass(Connected) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err != nil || !p.armed(Written) {
				return
			}
			wrote.Go(func() {
				select {
				case <-answered:
				case <-time.After(flush):
				}
				p.Pass(Written)
			})
		},
		GotFirstResponseByte: func() {
			seen()
			p.Pass(Answer)
		},
	}))
}
