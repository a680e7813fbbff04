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

// An operator raises the request timeout over the lease; the next holder sends while the first call is
// still in flight.
func TestB11ALeaseThatACallDoesNotFitIntoIsRefusedWithBothValues(t *testing.T) {
	t.Parallel()
	nobody := &provider{t: t, address: "127.0.0.1:1"}
	for name, test := range map[string]struct {
		timeout, lease, margin string
		fits                   bool
	}{
		"a timeout above the lease":    {"45s", "30s", "3s", false},
		"no room for the margin":       {"27s", "30s", "3s", false},
		"a timeout like the lease":     {"4s", "4s", "1s", false},
		"a margin of a second at last": {"3s", "4s", "1s", false},
		"room for the margin":          {"26s", "30s", "3s", true},
		"what the example has":         {"10s", "30s", "3s", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configure(embedded(t), nobody).with(test.timeout, "providers", "mail", "timeout").with(test.lease, "lease").with("60s", "grace")
			file := c.file(t)
			begun := time.Now()
			said, code := run(t, nil, "check-config", file)
			if test.fits {
				if code != 0 {
					t.Errorf("refused: %d, %s", code, said)
				}
				serve(t, c)
				return
			}
			refused := func(command, said string, failed bool) {
				t.Helper()
				if !failed || time.Since(begun) > 5*time.Second {
					t.Errorf("%s: failed is %t after %v", command, failed, time.Since(begun))
				}
				for _, value := range []string{"providers.mail.timeout", test.timeout, test.lease, test.margin} {
					if !strings.Contains(said, value) {
						t.Errorf("%s does not name %s: %s", command, value, said)
					}
				}
			}
			refused("check-config", said, code != 0)
			begun = time.Now()
			said, code = run(t, nil, "serve", "-config", file)
			refused("serve", said, code != 0)
		})
	}
}

// A remaining budget of nothing was read as "no deadline": the record stayed in progress for ever.
func TestB14ABudgetOfNothingMeansThatNobodyIsCalled(t *testing.T) {
	t.Parallel()
	t.Run("a deadline that is here or a moment ahead", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(t *testing.T, database string) {
			p := startProvider(t)
			g := serve(t, configure(database, p))
			sent := 0
			for i, left := range []time.Duration{-time.Hour, -5 * time.Millisecond, 0, 100 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond, 13 * time.Millisecond} {
				for j := range 5 {
					d := remind(fmt.Sprintf("rem-b14-%d-%d", i, j))
					deadline := time.Now().Add(left).UTC()
					d = d.but("deadline", deadline.Format(time.RFC3339Nano))
					g.repeated(d, 2)
					s := g.of(d)
					for _, l := range s.Timeline {
						if l.Kind == "attempt" && !l.Started.Before(deadline) {
							t.Errorf("%v left: called %v after the deadline", left, l.Started.Sub(deadline))
						}
					}
					switch e := s.Entry; {
					case e.State == "sent" && e.Attempts == 1 && left > 0:
						sent++
						p.saw(d, 1, 1)
					case e.State == "dropped" && e.Reason == "expired" && e.Attempts == 0:
						p.saw(d, 0, 0)
					case (e.State == "unknown" || e.State == "dropped") && e.Attempts == 1 && left > 0:
						// Dialled in time, and cut off at the deadline: that is a call, and counted.
						if calls := p.tally(d).Calls; calls > 1 {
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
	// Load and claim take 600 ms each, and the call may begin within 900 ms of the first.
	t.Run("a ledger so slow that the lease is used up before the call", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{Idempotent: true})
		link := between(t, shared(t))
		g := serve(t, configure(link.url, p).with("2s", "lease").with("900ms", "providers", "mail", "timeout").with("2s", "sources", "queue", "answer_within"))
		g.acked(remind("rem-b14-warm"), 20*time.Second) // its statements are prepared

		d := remind("rem-b14-slow")
		link.pace(600 * time.Millisecond)
		// Some deliveries find no connection in time, and are not recorded at all.
		until(t, time.Minute, "a claim is settled as not called", func() bool {
			g.nacked(d)
			_, told := g.log.find(`"reason":"not_called"`)
			return told
		})
		p.saw(d, 0, 0)
		link.pace(0)
		g.acked(d, 20*time.Second)
		g.stands(d, standing{"sent", "", "accepted", 1}).tells(t, "accepted")
		p.saw(d, 1, 1)
	})
	t.Run("no row can be sending without a lease", func(t *testing.T) {
		t.Parallel()
		onBoth(t, func(t *testing.T, database string) {
			p := startProvider(t)
			serve(t, configure(database, p)) // makes the schema of an embedded ledger
			db := rows(t, database)
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
				t.Errorf("a lease taken away: %v", err)
			}
		})
	})
}

// The request's context ends with its client, and the closing update with it.
func TestB15ABrokerThatHangsUpDoesNotCostTheRecord(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		onFlavours(t, func(t *testing.T, f flavour) {
			p := startProvider(t)
			p.told(providertest.Control{Idempotent: f.honours, LatencyMin: 700 * time.Millisecond})
			g := serve(t, f.configure(database, p))
			d := remind("rem-b15")
			if !f.honours {
				d = remind("rem-b15-i")
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
					err = errors.Join(resp.Body.Close(), fmt.Errorf("answered %s", resp.Status))
				}
				answered <- err
			}()
			until(t, 10*time.Second, "the call is in flight", func() bool { return p.tally(d).Calls == 1 })
			hangUp()
			if err := <-answered; !errors.Is(err, context.Canceled) {
				t.Fatalf("the client should have hung up: %v", err)
			}
			g.comesTo(d, "sent", 10*time.Second)
			for range 3 {
				if a := g.bring(d); a.status != http.StatusOK || !a.verdict(t).Duplicate || a.took > time.Second {
					t.Errorf("a redelivery: %s in %v", a, a.took)
				}
			}
			g.stands(d, standing{"sent", "", "accepted", 1}).tells(t, "accepted")
			p.saw(d, 1, 1)
			g.counted("sendonce_duplicates_total", 3)
			g.neverLogs(`"level":"ERROR","msg":"delivery"`, `"level":"ERROR","msg":"settled"`)
		})
	})
}

// Handlers that each hold a connection and wait for one more stand still; and health stays green.
func TestB28FourConnectionsAreEnoughForSixtyFourDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.told(providertest.Control{Idempotent: true, LatencyMin: 200 * time.Millisecond})
	link := between(t, shared(t))
	g := serve(t, configure(link.url, p).with(4, "database", "max_conns"))
	crowd := func(prefix string, each func(document, answer)) {
		parallel(64, func(i int) {
			d := remind(fmt.Sprintf("%s-%d", prefix, i))
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
			d := remind(fmt.Sprintf("%s-%d", prefix, i))
			g.acked(d, max(time.Second, within-time.Since(begun)))
			if got := p.tally(d); got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
	}
	ready := func() bool { return g.operations("/readyz").status == http.StatusOK }

	crowd("rem-b28", func(_ document, a answer) {
		if !isAck(a) && !isNack(a) {
			t.Errorf("at once: %s", a)
		}
	})
	allSent("rem-b28", 15*time.Second)
	if !ready() {
		t.Error("not ready, with a database that answers")
	}

	link.stall()
	calls := p.counts().Calls
	until(t, 10*time.Second, "readiness tells of the stall", func() bool { return !ready() })
	patient := func(d document, a answer) {
		if !isNack(a) || a.took > 5*time.Second {
			t.Errorf("while the database stalls, %s is answered in %v: %s, Retry-After %q", d["reminder_id"], a.took, a, a.header.Get("Retry-After"))
		}
	}
	lone := remind("rem-b28-lone")
	patient(lone, g.bring(lone))
	crowd("rem-b28-stalled", patient)
	if a := g.operations("/livez"); a.status != http.StatusOK {
		t.Errorf("liveness: %s", a)
	}
	if got := p.counts().Calls; got != calls {
		t.Errorf("%d calls while the database stalled", got-calls)
	}

	link.resume()
	until(t, 10*time.Second, "it is ready again", ready)
	allSent("rem-b28-stalled", 15*time.Second)
	p.acceptsOnce()
}

// Connections on which nothing comes any more, as behind a firewall that forgot them, are noticed by a
// bound on every wait or not at all: the network may take a quarter of an hour to say so.
func TestB28ConnectionsThatFallSilentForEverCostNoPatienceAndNoWorker(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	link := between(t, shared(t))
	g := serve(t, configure(link.url, p).with(16, "database", "max_conns"))
	parallel(64, func(i int) { // so that every connection stands, and serves one thing or another
		if _, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(remind(fmt.Sprintf("rem-b28-warm-%d", i)).String())); err != nil {
			t.Error(err)
		}
	})
	ready := func() bool { return g.operations("/readyz").status == http.StatusOK }

	link.stall()
	lone := remind("rem-b28-lone")
	if a := g.bring(lone); !isNack(a) || a.took > 5*time.Second { // answer_within is 3 s
		t.Errorf("while the database stalls it is answered in %v: %s, Retry-After %q", a.took, a, a.header.Get("Retry-After"))
	}
	until(t, 10*time.Second, "readiness tells of the stall", func() bool { return !ready() })
	link.forget()
	until(t, 40*time.Second, "it is ready again", ready)
	d := remind("rem-b28-worker").but("not_before", time.Now().Add(time.Second).UTC().Format(time.RFC3339Nano))
	g.acked(d, 15*time.Second)
	g.comesTo(d, "sent", 20*time.Second) // by the worker: nobody brings it again
	p.saw(d, 1, 1)
	g.acked(lone, 20*time.Second)
	p.saw(lone, 1, 1)
}

// link is a network between the gateway and its database, which can be made slow.
type link struct {
	url string

	mu    sync.Mutex
	flow  chan struct{} // closed while what is said passes
	delay time.Duration // of each thing that the gateway says
}

// between puts a link before a PostgreSQL.
func between(t *testing.T, database string) *link {
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
			go l.carry(ctx, client, target)
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

// forget carries what is said from now on; connections that were held up stay silent for ever.
func (l *link) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flow = make(chan struct{})
	close(l.flow)
}

func (l *link) pace(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *link) carry(ctx context.Context, client net.Conn, target string) {
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
		_, _ = io.Copy(held{ctx, l, server, true}, client)
	}()
	_, _ = io.Copy(held{ctx, l, client, false}, server)
}

// held writes when the link lets it.
type held struct {
	ctx    context.Context
	l      *link
	to     io.Writer
	slowed bool
}

func (h held) Write(p []byte) (int, error) {
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
