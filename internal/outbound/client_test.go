package outbound_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/outbound"
)

func client(t *testing.T, o outbound.Options) *outbound.Client {
	c := outbound.New(o)
	t.Cleanup(c.CloseIdle)
	return c
}

func post(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestDo_ReturnsFactsOfResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Agent", r.UserAgent())
		w.Header().Set("X-Encoding", r.Header.Get("Accept-Encoding"))
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	req := post(t, server.URL)
	resp := client(t, outbound.Options{}).Do(t.Context(), req)
	if resp.Status != http.StatusTeapot || string(resp.Body) != `{"a":1}` || resp.BodyCut || !resp.Called || resp.Connections != 1 ||
		resp.Cause != outbound.CauseStatus || resp.Header.Get("X-Agent") != "sendonce" || resp.Header.Get("X-Encoding") != "" {
		t.Errorf("got %+v", resp)
	}
	if req.GetBody == nil || len(req.Header) != 0 {
		t.Error("the caller's request was changed")
	}
}

func TestDo_ReplayableRequestIsNotReplayed(t *testing.T) {
	// Each connection responds once, then reads a whole second request and closes: in this case net/http sends a
	// POST again if GetBody and the key are set.
	var posts atomic.Int32
	address := listen(t, func(conn net.Conn) {
		reader := bufio.NewReader(conn)
		for first := true; ; first = false {
			req, err := http.ReadRequest(reader)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			posts.Add(1)
			if !first {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	c := client(t, outbound.Options{Reuse: true})
	for i := range 100 {
		req := post(t, "http://"+address)
		req.Header.Set("Idempotency-Key", "k")
		resp := c.Do(t.Context(), req)
		if int(posts.Load()) != i+1 || resp.Connections != 1 || !resp.Called {
			t.Fatalf("call %d: %d posts, %+v", i, posts.Load(), resp)
		}
		if reused := i%2 == 1; reused != (resp.Status == 0) {
			t.Fatalf("call %d: %+v", i, resp)
		}
	}
}

func TestDo_RedirectIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			http.Redirect(w, r, "/elsewhere", status)
		}))
		resp := client(t, outbound.Options{}).Do(t.Context(), post(t, server.URL))
		server.Close()
		if resp.Status != status || calls.Load() != 1 {
			t.Errorf("%d: %d calls, %+v", status, calls.Load(), resp)
		}
	}
}

func TestDo_EndlessBodyIsNotRead(t *testing.T) {
	written := make(chan int, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk, total := make([]byte, 64<<10), 0
		for n, err := 0, error(nil); err == nil; total += n {
			n, err = w.Write(chunk)
		}
		written <- total
	}))
	defer server.Close()
	resp := client(t, outbound.Options{}).Do(t.Context(), post(t, server.URL))
	// The kernel's buffers may hold more than the client read.
	if total := <-written; resp.Status != 200 || !resp.BodyCut || total > 64<<20 {
		t.Errorf("%d bytes were written: status %d, cut %v", total, resp.Status, resp.BodyCut)
	}
}

func TestDo_BodyIsReadUpToLimit(t *testing.T) {
	for size, cut := range map[int]bool{0: false, 99: false, 100: false, 101: true, 1 << 20: true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("a"), size))
		}))
		resp := client(t, outbound.Options{MaxBody: 100}).Do(t.Context(), post(t, server.URL))
		server.Close()
		if resp.Status != 200 || resp.BodyCut != cut || len(resp.Body) != min(size, 100) {
			t.Errorf("%d bytes: read %d, cut %v", size, len(resp.Body), resp.BodyCut)
		}
	}
}

func TestDo_FailureHasCauseAndCalled(t *testing.T) {
	silent := listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for name, test := range map[string]struct {
		url    string
		cause  string
		called bool
		limit  time.Duration
		o      outbound.Options
	}{
		"nobody listens":        {url: "http://" + deadAddress(t), cause: outbound.CauseRefused},
		"no such name":          {url: "http://no-such-host.invalid", cause: outbound.CauseDNS},
		"no such scheme":        {url: "gopher://127.0.0.1", cause: outbound.CauseRequest},
		"closed at once":        {url: "http://" + listen(t, reply("")), cause: outbound.CauseEOF, called: true},
		"reset":                 {url: "http://" + listen(t, reset), called: true},
		"garbage":               {url: "http://" + listen(t, reply("220 mail\r\n\r\n")), cause: outbound.CauseProtocol, called: true},
		"header bomb":           {url: "http://" + listen(t, reply("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("a", 1<<20))), cause: outbound.CauseProtocol, called: true},
		"cut header":            {url: "http://" + listen(t, reply("HTTP/1.1 200 OK\r\nContent-")), cause: outbound.CauseProtocol, called: true},
		"silence":               {url: "http://" + silent, cause: outbound.CauseTimeout, called: true, limit: 200 * time.Millisecond},
		"silence before TLS":    {url: "https://" + silent, cause: outbound.CauseTLS, limit: 200 * time.Millisecond},
		"own limit for TLS":     {url: "https://" + silent, cause: outbound.CauseTLS, o: outbound.Options{TLSTimeout: 50 * time.Millisecond}},
		"no TLS there":          {url: "https://" + listen(t, reply("HTTP/1.1 400 Bad Request\r\n\r\n")), cause: outbound.CauseTLS},
		"the proxy refuses":     {url: "https://a.example", cause: outbound.CauseProxy, o: proxy(t, listen(t, reply("HTTP/1.1 403 No\r\n\r\n")))},
		"nobody at the proxy":   {url: "http://a.example", o: proxy(t, deadAddress(t))},
		"deadline passed":       {url: "http://" + silent, cause: outbound.CauseNotDialled, limit: -1},
		"an invalid header":     {url: "http://" + silent, cause: outbound.CauseRequest, o: outbound.Options{UserAgent: "a\r\nb"}},
		"an informational loop": {url: "http://" + listen(t, reply(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 50))), called: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := test.limit
			if limit == 0 {
				limit = time.Minute
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			resp := client(t, test.o).Do(ctx, post(t, test.url))
			if resp.Called != test.called || resp.Status != 0 || test.cause != "" && resp.Cause != test.cause {
				t.Errorf("called %v with cause %q, want %v with cause %q", resp.Called, resp.Cause, test.called, test.cause)
			}
		})
	}
}

func TestDo_CancellationIsNotTimeout(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address := listen(t, func(conn net.Conn) {
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		cancel()
		_, _ = io.Copy(io.Discard, conn)
	})
	if resp := client(t, outbound.Options{}).Do(ctx, post(t, "http://"+address)); resp.Cause != outbound.CauseCancelled || !resp.Called {
		t.Errorf("got %+v", resp)
	}
}

func TestDo_RequiresValidCertificateAndHTTP1(t *testing.T) {
	var major atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		major.Store(int32(r.ProtoMajor))
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	trusting := client(t, outbound.Options{RootCAs: roots})
	if resp := trusting.Do(t.Context(), post(t, server.URL)); resp.Status != 200 || major.Load() != 1 {
		t.Errorf("HTTP/%d, %+v", major.Load(), resp)
	}
	untrusting := client(t, outbound.Options{})
	if resp := untrusting.Do(t.Context(), post(t, server.URL)); resp.Cause != outbound.CauseCertificate || resp.Called {
		t.Errorf("unknown authority: %+v", resp)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	if resp := trusting.Do(t.Context(), post(t, "https://localhost:"+port)); resp.Cause != outbound.CauseCertificate || resp.Called {
		t.Errorf("other host: %+v", resp)
	}
}

// The peer keeps the connection open after its response, so that only the client can end the call and close it.
func TestDo_ResponseThatNeverEndsEndsWithCall(t *testing.T) {
	for name, test := range map[string]struct {
		text, cause string
		status      int
	}{
		"switched protocols":         {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", outbound.CauseStatus, 101},
		"switched without a header":  {"HTTP/1.1 101 Switching Protocols\r\n\r\n", outbound.CauseStatus, 101},
		"switched after a hint":      {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", outbound.CauseStatus, 101},
		"continue and nothing more":  {"HTTP/1.1 100 Continue\r\n\r\n", outbound.CauseTimeout, 0},
		"processing, nothing more":   {"HTTP/1.1 102 Processing\r\n\r\n", outbound.CauseTimeout, 0},
		"unknown and nothing more":   {"HTTP/1.1 199 Unknown\r\n\r\n", outbound.CauseTimeout, 0},
		"headers that never end":     {"HTTP/1.1 200 OK\r\nX: a\r\n", outbound.CauseTimeout, 0},
		"a body that never ends":     {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na", outbound.CauseBodyCut, 200},
		"chunks that never end":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", outbound.CauseBodyCut, 200},
		"a body without a length":    {"HTTP/1.1 200 OK\r\n\r\na", outbound.CauseBodyCut, 200},
		"a refusal that never ends":  {"HTTP/1.1 422 No\r\nContent-Length: 9\r\n\r\na", outbound.CauseBodyCut, 422},
		"a response, and no closing": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", outbound.CauseStatus, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan struct{})
			address := listen(t, func(conn net.Conn) {
				defer close(closed)
				reply(test.text)(conn)
				_, _ = io.Copy(io.Discard, conn)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			ended := make(chan outbound.Response, 1)
			go func() { ended <- client(t, outbound.Options{}).Do(ctx, post(t, "http://"+address)) }()
			for _, wait := range []string{"the call ends", "the connection is closed"} {
				select {
				case resp := <-ended:
					if resp.Status != test.status || resp.Cause != test.cause || !resp.Called {
						t.Errorf("got status %d with cause %q, want %d with %q", resp.Status, resp.Cause, test.status, test.cause)
					}
					ended = nil
				case <-closed:
					closed = nil
				case <-time.After(10 * time.Second):
					t.Fatalf("not before 10 s: %s", wait)
				}
			}
		})
	}
}

// BenchmarkDo compares a connection for each call with reused ones, over TLS and without it.
func BenchmarkDo(b *testing.B) {
	for _, secure := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"id": "m-1"}`)
		}))
		o := outbound.Options{}
		if secure {
			server.StartTLS()
			o.RootCAs = x509.NewCertPool()
			o.RootCAs.AddCert(server.Certificate())
		} else {
			server.Start()
		}
		for _, o.Reuse = range []bool{false, true} {
			b.Run(fmt.Sprintf("tls=%v/reuse=%v", secure, o.Reuse), func(b *testing.B) {
				c := outbound.New(o)
				defer c.CloseIdle()
				for b.Loop() {
					req, _ := http.NewRequest(http.MethodPost, server.URL, strings.NewReader(`{"a":1}`))
					if resp := c.Do(b.Context(), req); resp.Status != http.StatusOK {
						b.Fatalf("got %+v", resp)
					}
				}
			})
		}
		server.Close()
	}
}

func proxy(t *testing.T, address string) outbound.Options {
	t.Helper()
	return outbound.Options{Proxy: &url.URL{Scheme: "http", Host: address}}
}

func reset(conn net.Conn) {
	_, _ = conn.Read(make([]byte, 1))
	_ = conn.(*net.TCPConn).SetLinger(0)
}

func reply(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, text)
	}
}

func deadAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// listen serves each connection with serve, and closes it afterwards.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// expiredContext is a context whose deadline has passed but whose timer has not fired, as in a process that was
// suspended and has just resumed.
type expiredContext struct{ context.Context }

func (expiredContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestDo_PassedDeadlineWithoutFiredTimerMakesNoCall(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	defer server.Close()
	resp := outbound.New(outbound.Options{}).Do(expiredContext{t.Context()}, post(t, server.URL))
	if resp.Called || resp.Cause != outbound.CauseNotDialled || calls.Load() != 0 {
		t.Errorf("%+v after %d calls", resp, calls.Load())
	}
}
