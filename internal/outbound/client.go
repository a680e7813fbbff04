package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// Options shape a [Client]. The zero value is fit for use.
type Options struct {
	TLSTimeout time.Duration  // of a handshake; 5 s
	MaxBody    int64          // of an answer, in bytes; 64 KiB
	Proxy      *url.URL       // nil for none; the environment is not asked
	RootCAs    *x509.CertPool // nil for the system's
	UserAgent  string         // "sendonce"
}

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 30 * time.Second // of an unused connection: below what servers keep theirs
	idlePerHost = 32               // unused connections that are kept for one host
	maxHeader   = 64 << 10         // of an answer, in bytes
)

// Client sends. It is safe for concurrent use, and keeps connections between calls.
type Client struct {
	http      *http.Client
	maxBody   int64
	userAgent string
}

// New makes a client.
func New(o Options) *Client {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    or(o.TLSTimeout, 5*time.Second),
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs},
		Protocols:              &http1,
		DisableCompression:     true,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: maxHeader,
	}
	if o.Proxy != nil {
		transport.Proxy = http.ProxyURL(o.Proxy)
	}
	return &Client{
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		maxBody:   or(o.MaxBody, 64<<10),
		userAgent: or(o.UserAgent, "sendonce"),
	}
}

// CloseIdle closes the connections that nobody uses.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Over tells whether a call's time is over, by the clock: the context of a process that was suspended says so
// only once its timer has fired.
func Over(ctx context.Context) bool {
	deadline, ends := ctx.Deadline()
	return ctx.Err() != nil || ends && !time.Now().Before(deadline)
}

// Do sends the request once, under ctx's deadline, and tells what that proved. The answer's body has been
// read and closed. A request that means to send something must have a body: net/http takes one without for
// safe to repeat.
func (c *Client) Do(ctx context.Context, req *http.Request) Exchange {
	if Over(ctx) {
		return Exchange{Cause: CauseNotDialled}
	}
	var steps trail
	req = req.WithContext(httptrace.WithClientTrace(ctx, steps.trace()))
	req.GetBody = nil
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header = req.Header.Clone()
		req.Header.Set("User-Agent", c.userAgent)
	}

	resp, err := c.http.Do(req)
	x := Exchange{Connections: int(steps.connections.Load())}
	x.Called = x.Connections > 0
	if err != nil {
		x.Cause = steps.cause(ctx, err)
		return x
	}
	defer resp.Body.Close()
	x.Status, x.Header, x.Cause = resp.StatusCode, resp.Header, CauseStatus
	x.Body, err = io.ReadAll(io.LimitReader(resp.Body, c.maxBody+1))
	if int64(len(x.Body)) > c.maxBody {
		x.Body, x.BodyCut = x.Body[:c.maxBody], true
	}
	if x.BodyCut = x.BodyCut || err != nil; x.BodyCut {
		x.Cause = CauseBodyCut
	}
	return x
}

// trail records how far a call came. A dial may outlive its call, so the marks are atomic.
type trail struct {
	connections             atomic.Int32
	lookup, dial, handshake atomic.Bool
}

func (t *trail) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:           func(httptrace.GotConnInfo) { t.connections.Add(1) },
		DNSStart:          func(httptrace.DNSStartInfo) { t.lookup.Store(true) },
		ConnectStart:      func(string, string) { t.dial.Store(true) },
		TLSHandshakeStart: func() { t.handshake.Store(true) },
	}
}

// cause names a failure. Where no connection was had, the step that it stuck in tells more than the error.
func (t *trail) cause(ctx context.Context, err error) string {
	cause := CauseOf(ctx, err)
	if t.connections.Load() > 0 {
		return cause
	}
	switch ended := cause == CauseTimeout || cause == CauseCancelled; {
	case t.handshake.Load() && cause != CauseCertificate:
		return CauseTLS
	case ended && t.dial.Load():
		return CauseDialTimeout
	case ended && t.lookup.Load():
		return CauseDNS
	case ended:
		return CauseNotDialled
	case cause == CauseProtocol && !t.lookup.Load() && !t.dial.Load():
		return CauseRequest
	case cause == CauseProtocol:
		return CauseProxy // dialled, no TLS begun, no connection had: only a proxy speaks there
	default:
		return cause
	}
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
