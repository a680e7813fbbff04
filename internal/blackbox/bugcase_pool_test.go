package blackbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// Bug: an operator raises the request timeout above the lease; the next holder sends while the first call is
// still in flight.
func TestB11_LeaseShorterThanACallIsRejectedWithBothValues(t *testing.T) {
	t.Parallel()
	noProvider := &provider{t: t, address: "127.0.0.1:1"}
	for name, test := range map[string]struct {
		timeout, lease, margin string
		fits                   bool
	}{
		"a timeout above the lease":        {"45s", "30s", "3s", false},
		"a timeout that leaves no margin":  {"27s", "30s", "3s", false},
		"a timeout like the lease":         {"4s", "4s", "1s", false},
		"a margin of a second at last":     {"3s", "4s", "1s", false},
		"a timeout that leaves the margin": {"26s", "30s", "3s", true},
		"the values of the example":        {"10s", "30s", "3s", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configure(newSQLite(t), noProvider).with(test.timeout, "providers", "mail", "timeout").with(test.lease, "lease").with("60s", "grace")
			file := c.file(t)
			begun := time.Now()
			output, code := run(t, nil, "check-config", file)
			if test.fits {
				if code != 0 {
					t.Errorf("refused: %d, %s", code, output)
				}
				serve(t, c)
				return
			}
			refused := func(command, output string, failed bool) {
				t.Helper()
				if !failed || time.Since(begun) > 5*time.Second {
					t.Errorf("%s: failed is %t after %v", command, failed, time.Since(begun))
				}
				for _, value := range []string{"providers.mail.timeout", test.timeout, test.lease, test.margin} {
					if !strings.Contains(output, value) {
						t.Errorf("%s does not name %s: %s", command, value, output)
					}
				}
			}
			refused("check-config", output, code != 0)
			begun = time.Now()
			output, code = run(t, nil, "serve", "-config", file)
			refused("serve", output, code != 0)
		})
	}
}

// Bug: a remaining budget of zero was read as "no deadline": the record stayed in progress for ever.
func TestB14_ExhaustedTimeBudgetMeansNoCall(t *testing.T) {
	t.Parallel()
	t.Run("a deadline that has passed or is milliseconds away", func(t *testing.T) {
		t.Parallel()
		forEachStore(t, func(t *testing.T, database string) {
			p := startProvider(t)
			g := serve(t, configure(database, p))
			sent := 0
			for i, left := range []time.Duration{-time.Hour, -5 * time.Millisecond, 0, 100 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond, 13 * time.Millisecond} {
				for j := range 5 {
					d := newReminder(fmt.Sprintf("rem-b14-%d-%d", i, j))
					deadline := time.Now().Add(left).UTC()
					d = d.with("deadline", deadline.Format(time.RFC3339Nano))
					g.redeliver(d, 2)
					s := g.detail(d)
					for _, l := range s.Timeline {
						if l.Kind == "attempt" && !l.Started.Before(deadline) {
							t.Errorf("%v left: called %v after the deadline", left, l.Started.Sub(deadline))
						}
					}
					switch e := s.Entry; {
					case e.State == "sent" && e.Attempts == 1 && left > 0:
						sent++
						p.checkCalls(d, 1, 1)
					case e.State == "dropped" && e.Reason == "expired" && e.Attempts == 0:
						p.checkCalls(d, 0, 0)
					case (e.State == "unknown" || e.State == "dropped") && e.Attempts == 1 && left > 0:
						// Dialled in time and cut off at the deadline: that is a call, and it is counted.
						if calls := p.countsFor(d).Calls; calls > 1 {
							t.Errorf("%v: %d calls", left, calls)
						}
					default:
						t.Errorf("%v left: %+v", left, e)
					}
				}
			}
			t.Logf("%d of 50 were sent in time", sent) // on a slow machine none
		})
	})
	// Load and claim take 600 ms each, and the call must begin within 900 ms of the first.
	t.Run("a ledger so slow that no time is left for the call", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{Idempotent: true})
		link := newLink(t, newPostgres(t))
		g := serve(t, configure(link.url, p).with("2s", "lease").with("900ms", "providers", "mail", "timeout").with("2s", "sources", "queue", "answer_within"))
		g.pushUntilAcked(newReminder("rem-b14-warm"), 20*time.Second) // prepares the statements

		d := newReminder("rem-b14-slow")
		link.setDelay(600 * time.Millisecond)
		// Some deliveries get no connection in time, and are not recorded at all.
		waitUntil(t, time.Minute, "a claim is settled as not called", func() bool {
			g.pushExpectNack(d)
			_, found := g.log.find(`"reason":"not_called"`)
			return found
		})
		p.checkCalls(d, 0, 0)
		link.setDelay(0)
		g.pushUntilAcked(d, 20*time.Second)
		g.checkState(d, entryState{"sent", "", "accepted", 1}).checkOutcomes(t, "accepted")
		p.checkCalls(d, 1, 1)
	})
	t.Run("no row can be in state sending without a lease", func(t *testing.T) {
		t.Parallel()
		forEachStore(t, func(t *testing.T, database string) {
			p := startProvider(t)
			serve(t, configure(database, p)) // creates the schema of an SQLite ledger
			db := openDB(t, database)
			now := "now()"
			if strings.HasPrefix(database, "sqlite:") {
				now = "1000000"
			}
			insert := func(id, lease string) error {
				_, err := db.ExecContext(t.Context(), strings.NewReplacer("$lease", lease, "$id", id).Replace(
					`insert into entries (reminder_id, type, channel, send_key, state, version, reason, holder, lease_until, claimed_at, first_seen, updated)
					values ('$id', 't', 'c', '`+strings.Repeat("0", 64)+`', 'sending', 1, 'claimed', 'h', $lease, `+now+`, `+now+`, `+now+`)`))
				return err
			}
			if err := insert("with", now); err != nil {
				t.Fatalf("with a lease: %v", err)
			}
			if err := insert("without", "null"); err == nil || !strings.Contains(err.Error(), "entries_lease") {
				t.Errorf("without a lease: %v", err)
			}
			if _, err := db.ExecContext(t.Context(), `update entries set lease_until = null where reminder_id = 'with'`); err == nil || !strings.Contains(err.Error(), "entries_lease") {
				t.Errorf("a lease removed: %v", err)
			}
		})
	})
}

// Bug: the request's context ends with its client, and the closing update with it.
func TestB15_ClientHangUpDoesNotLoseTheRecord(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		forEachFlavour(t, func(t *testing.T, f flavour) {
			p := startProvider(t)
			p.setControl(providertest.Control{Idempotent: f.honours, LatencyMin: 700 * time.Millisecond})
			g := serve(t, f.configure(database, p))
			d := newReminder("rem-b15")
			if !f.honours {
				d = newReminder("rem-b15-i")
			}
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/push/queue", strings.NewReader(d.String()))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+queueToken)
			answered := make(chan error)
			go func() {
				resp, err := client.Do(req)
				if err == nil {
					err = errors.Join(resp.Body.Close(), fmt.Errorf("response %s", resp.Status))
				}
				answered <- err
			}()
			waitUntil(t, 10*time.Second, "the call is in flight", func() bool { return p.countsFor(d).Calls == 1 })
			hangUp()
			if err := <-answered; !errors.Is(err, context.Canceled) {
				t.Fatalf("the client should have hung up: %v", err)
			}
			g.waitForState(d, "sent", 10*time.Second)
			for range 3 {
				if a := g.deliver(d); a.status != http.StatusOK || !a.plainReply(t).Duplicate || a.took > time.Second {
					t.Errorf("a redelivery: %s in %v", a, a.took)
				}
			}
			g.checkState(d, entryState{"sent", "", "accepted", 1}).checkOutcomes(t, "accepted")
			p.checkCalls(d, 1, 1)
			g.checkMetric("sendonce_duplicates_total", 3)
			g.checkNotLogged(`"level":"ERROR","msg":"delivery"`, `"level":"ERROR","msg":"settled"`)
		})
	})
}

// Bug: handlers that each hold a connection and wait for one more deadlock, while health stays green.
func TestB28_FourConnectionsServeSixtyFourConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.setControl(providertest.Control{Idempotent: true, LatencyMin: 200 * time.Millisecond})
	link := newLink(t, newPostgres(t))
	g := serve(t, configure(link.url, p).with(4, "database", "max_conns"))
	pushAll := func(prefix string, each func(document, answer)) {
		parallel(64, func(i int) {
			d := newReminder(fmt.Sprintf("%s-%d", prefix, i))
			a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
			if err != nil {
				t.Errorf("%s: %v", d["reminder_id"], err)
				return
			}
			each(d, a)
		})
	}
	allSent := func(prefix string, within time.Duration) {
		t.Helper()
		begun := time.Now()
		for i := range 64 {
			d := newReminder(fmt.Sprintf("%s-%d", prefix, i))
			g.pushUntilAcked(d, max(time.Second, within-time.Since(begun)))
			if got := p.countsFor(d); got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
	}
	ready := func() bool { return g.opsGet("/readyz").status == http.StatusOK }

	pushAll("rem-b28", func(_ document, a answer) {
		if !isAck(a) && !isNack(a) {
			t.Errorf("concurrent delivery: %s", a)
		}
	})
	allSent("rem-b28", 15*time.Second)
	if !ready() {
		t.Error("not ready, with a database that answers")
	}

	link.stall()
	calls := p.counts().Calls
	waitUntil(t, 10*time.Second, "readiness reports the stall", func() bool { return !ready() })
	checkNack := func(d document, a answer) {
		if !isNack(a) || a.took > 5*time.Second {
			t.Errorf("while the database stalls, %s is answered in %v: %s, Retry-After %q", d["reminder_id"], a.took, a, a.header.Get("Retry-After"))
		}
	}
	lone := newReminder("rem-b28-lone")
	checkNack(lone, g.deliver(lone))
	pushAll("rem-b28-stalled", checkNack)
	if a := g.opsGet("/livez"); a.status != http.StatusOK {
		t.Errorf("liveness: %s", a)
	}
	if got := p.counts().Calls; got != calls {
		t.Errorf("%d calls while the database stalled", got-calls)
	}

	link.resume()
	waitUntil(t, 10*time.Second, "it is ready again", ready)
	allSent("rem-b28-stalled", 15*time.Second)
	p.checkAcceptedOnce()
}

// Bug: connections that silently carry nothing any more, as behind a firewall that dropped their state, are
// only noticed if every wait is bounded: the network may take a quarter of an hour to report it.
func TestB28_SilentConnectionsHoldUpNoDeliveryAndNoWorker(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	link := newLink(t, newPostgres(t))
	g := serve(t, configure(link.url, p).with(16, "database", "max_conns"))
	parallel(64, func(i int) { // so that every connection is open and in use by some component
		if _, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(newReminder(fmt.Sprintf("rem-b28-warm-%d", i)).String())); err != nil {
			t.Error(err)
		}
	})
	ready := func() bool { return g.opsGet("/readyz").status == http.StatusOK }

	link.stall()
	lone := newReminder("rem-b28-lone")
	if a := g.deliver(lone); !isNack(a) || a.took > 5*time.Second { // answer_within is 3 s
		t.Errorf("while the database stalls it is answered in %v: %s, Retry-After %q", a.took, a, a.header.Get("Retry-After"))
	}
	waitUntil(t, 10*time.Second, "readiness reports the stall", func() bool { return !ready() })
	link.dropStalled()
	waitUntil(t, 40*time.Second, "it is ready again", ready)
	d := newReminder("rem-b28-worker").with("not_before", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	g.pushUntilAcked(d, 15*time.Second)
	g.waitForState(d, "sent", 20*time.Second) // by the worker: it is not redelivered
	p.checkCalls(d, 1, 1)
	g.pushUntilAcked(lone, 20*time.Second)
	p.checkCalls(lone, 1, 1)
}

// link is a proxy between the gateway and its database that can delay and stall the traffic.
type link struct {
	url string

	mu    sync.Mutex
	flow  chan struct{} // closed while data passes
	delay time.Duration // of each write of the gateway
}

// newLink puts a link in front of a PostgreSQL.
func newLink(t *testing.T, database string) *link {
	t.Helper()
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{flow: make(chan struct{})}
	close(l.flow)
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() {
		end()
		_ = listener.Close()
	})
	target := address.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.forward(ctx, client, target)
		}
	}()
	address.Host = listener.Addr().String()
	l.url = address.String()
	return l
}

func (l *link) stall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow = make(chan struct{})
}

func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flow)
}

// dropStalled forwards new writes; connections that were stalled stay silent for ever.
func (l *link) dropStalled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow = make(chan struct{})
	close(l.flow)
}

func (l *link) setDelay(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *link) forward(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	go func() {
		defer server.Close()
		_, _ = io.Copy(linkWriter{ctx, l, server, true}, client)
	}()
	_, _ = io.Copy(linkWriter{ctx, l, client, false}, server)
}

// linkWriter writes when the link allows it.
type linkWriter struct {
	ctx    context.Context
	l      *link
	to     io.Writer
	slowed bool
}

func (h linkWriter) Write(p []byte) (int, error) {
	h.l.mu.Lock()
	flow, delay := h.l.flow, h.l.delay
	h.l.mu.Unlock()
	if h.slowed && delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-h.ctx.Done():
		}
	}
	select {
	case <-flow:
	case <-h.ctx.Done():
		return 0, h.ctx.Err()
	}
	return h.to.Write(p)
}
