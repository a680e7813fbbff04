//go:build unix

package crashpoint

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// flushTime is how long net/http may take to send a request that it reports as written: the report means its buffer.
const flushTime = 50 * time.Millisecond

// Call passes the points of one call to a provider.
func (p *Points) Call(ctx context.Context, send func(context.Context) ledger.Outcome) ledger.Outcome {
	p.Pass(Claimed)
	var wrote sync.WaitGroup // until the request is sent and Written is passed
	answered := make(chan struct{})
	responded := sync.OnceFunc(func() {
		close(answered)
		wrote.Wait()
	})
	defer responded() // a server that closes the connection sends no response
	return send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.Pass(Connected) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err != nil || !p.armed(Written) {
				return
			}
			wrote.Go(func() {
				select {
				case <-answered:
				case <-time.After(flushTime):
				}
				p.Pass(Written)
			})
		},
		GotFirstResponseByte: func() {
			responded()
			p.Pass(Answer)
		},
	}))
}
