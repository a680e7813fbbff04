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

// Options configure a [Client]. The zero value is ready for use; zero fields select the values given below.
type Options struct {
	TLSTimeout time.Duration  // per handshake; 5 s
	MaxBody    int64          // of a response, in bytes; 64 KiB
	Proxy      *url.URL       // nil for none; the environment is not used
	RootCAs    *x509.CertPool // nil for the system's roots
	UserAgent  string         // "sendonce"
	Reuse      bool           // reuses connections, which is unsafe if the peer may answer one request twice
}

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 30 * time.Second // of an idle connection; shorter than what servers use
	idlePerHost = 32               // idle connections kept per host
	maxHeader   = 64 << 10         // of a response, in bytes
	tlsSessions = 64               // TLS sessions kept, so that a new connection needs no whole handshake
)

// Client sends requests. It is safe for concurrent use. Each call has its own connection, unless [Options.Reuse] is set.
type Client struct {
	http      *http.Client
	maxBody   int64
	userAgent string
}

// New returns a client.
func New(o Options) *Client {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	tlsConfig := &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: o.RootCAs,
		ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessions),
	}
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout:    or(o.TLSTimeout, 5*time.Second),
		TLSClientConfig:        tlsConfig,
		Protocols:              &http1,
		DisableCompression:     true,
		DisableKeepAlives:      !o.Reuse,
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

// CloseIdle closes the idle connections.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Expired reports whether a call's deadline has passed, by the clock: in a process that was suspended, the context
// itself ends only when its timer fires.
func Expired(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Do sends the request once, with ctx's deadline, and returns what that proved. The response's body has been read and
// closed. A request that must not be repeated needs a body: net/http considers a request without one replayable.
func (c *Client) Do(ctx context.Context, req *http.Request) Response {
	if Expired(ctx) {
		return Response{Cause: CauseNotDialled}
	}
	var trace callTrace
	req = req.WithContext(httptrace.WithClientTrace(ctx, trace.clientTrace()))
	req.GetBody = nil
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header = req.Header.Clone()
		req.Header.Set("User-Agent", c.userAgent)
	}

	httpResp, err := c.http.Do(req)
	resp := Response{Connections: int(trace.connections.Load())}
	resp.Called = resp.Connections > 0
	if err != nil {
		resp.Cause = trace.cause(ctx, err)
		return resp
	}
	defer httpResp.Body.Close()
	resp.Status, resp.Header, resp.Cause = httpResp.StatusCode, httpResp.Header, CauseStatus
	if resp.Status == http.StatusSwitchingProtocols {
		// The body is the bare connection, which net/http no longer watches: a read would end neither with ctx nor
		// ever. No upgrade was asked for, so nothing on it belongs to this call; closing the body closes it.
		return resp
	}
	resp.Body, err = io.ReadAll(io.LimitReader(httpResp.Body, c.maxBody+1))
	if int64(len(resp.Body)) > c.maxBody {
		resp.Body, resp.BodyCut = resp.Body[:c.maxBody], true
	}
	if resp.BodyCut = resp.BodyCut || err != nil; resp.BodyCut {
		resp.Cause = CauseBodyCut
	}
	return resp
}

// callTrace records which steps a call reached. Its fields are atomic because a dial may outlive its call.
type callTrace struct {
	connections             atomic.Int32
	lookup, dial, handshake atomic.Bool
}

func (t *callTrace) clientTrace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:           func(httptrace.GotConnInfo) { t.connections.Add(1) },
		DNSStart:          func(httptrace.DNSStartInfo) { t.lookup.Store(true) },
		ConnectStart:      func(string, string) { t.dial.Store(true) },
		TLSHandshakeStart: func() { t.handshake.Store(true) },
	}
}

// cause returns the cause of a failure. If no connection was obtained, the last step reached is more informative
// than the error.
func (t *callTrace) cause(ctx context.Context, err error) string {
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
		return CauseProxy // dialled, but neither TLS nor a connection: only a proxy can have replied
	default:
		return cause
	}
}

// or returns value, or fallback if value is zero.
func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
