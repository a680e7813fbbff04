package blackbox

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// rolloutRounds is how often each replica is restarted: go test ./internal/blackbox -run TestB27 -rollout.rounds 5 -v
var rolloutRounds = flag.Int("rollout.rounds", 1, "how often each replica is restarted")

// Bug: a receiver is down, each replica keeps the message to itself and retries; when the receiver is back,
// each of them sends.
func TestB21_ReplicasThatRetryThroughAnOutageSendOnce(t *testing.T) {
	t.Parallel()
	const tries = 3 // while the provider is down; five in a row would close its gate
	outage := func(t *testing.T, p *provider, contract map[string]any, over func(), failed string) {
		c := configure(newPostgres(t), p).with(contract, "providers", "mail", "contract").withTakeover("1s").
			with(map[string]any{"base": "1s", "cap": "1s"}, "types", "default", "backoff").with(10, "types", "default", "max_attempts")
		replicas := []*gateway{serve(t, c), serve(t, c)}
		d := newReminder("rem-b21")
		down := true
		waitUntil(t, time.Minute, "it is sent", func() bool {
			var acks atomic.Int32
			parallel(len(replicas), func(i int) {
				a, err := replicas[i].call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
				switch {
				case err == nil && isAck(a):
					acks.Add(1)
				case err != nil || !isNack(a):
					t.Errorf("%s, %v", a, err)
				}
			})
			s := replicas[0].detail(d)
			if down && s.Entry.Attempts >= tries {
				down = false
				over()
			}
			return int(acks.Load()) == len(replicas) && s.Entry.State == "sent"
		})
		for range 3 {
			for _, g := range replicas {
				g.redeliver(d, 1)
			}
		}
		s := replicas[1].detail(d)
		number := 0
		for _, l := range s.Timeline {
			if l.Kind != "attempt" {
				continue
			}
			if number++; l.Attempt != number {
				t.Errorf("attempt %d is recorded as number %d", number, l.Attempt)
			}
			want := failed
			if number == s.Entry.Attempts {
				want = "accepted"
			}
			if l.Outcome != want {
				t.Errorf("attempt %d was %s, want %s", number, l.Outcome, want)
			}
		}
		if number != s.Entry.Attempts || number <= tries || number > 10 {
			t.Errorf("the timeline has %d attempts, the entry %d", number, s.Entry.Attempts)
		}
		if got := p.countsFor(d); got.Accepts != 1 || got.Bodies != 1 {
			t.Errorf("the provider saw %+v", got)
		}
	}
	t.Run("the provider answers 500, and honours the key", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{Idempotent: true, Modes: map[string][]string{"": {"status:500"}}})
		outage(t, p, map[string]any{"idempotent": "24h"}, func() { p.setControl(providertest.Control{Idempotent: true}) }, "unknown")
	})
	t.Run("the provider does not listen, and ignores the key", func(t *testing.T) {
		t.Parallel()
		p, open := startAbsentProvider(t)
		outage(t, p, map[string]any{"blind": true}, open, "unreachable")
	})
}

// Bug: a termination signal and the removal of the address race: some requests are sent to a listener that
// has just closed. The test runs alone, because readiness also reports a machine that is too busy.
func TestB27_RollingRestartUnderLoadFailsNoRequest(t *testing.T) {
	p := startProvider(t)
	p.setControl(providertest.Control{LatencyMin: 300 * time.Millisecond, LatencyMax: 800 * time.Millisecond})
	c := configure(newPostgres(t), p).with("2s", "drain").with("30s", "lease").with(map[string]any{"blind": true}, "providers", "mail", "contract").
		with("10s", "sources", "queue", "answer_within")
	b := newBalancer(t)
	replicas := []*gateway{serve(t, c), serve(t, c)}
	for _, g := range replicas {
		b.add(g)
	}
	behind := &gateway{t: t, url: b.url}

	over := make(chan struct{})
	delivered := make(chan []document)
	go func() {
		var all []document
		var requests sync.WaitGroup
		beat := time.NewTicker(20 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-over:
				requests.Wait()
				delivered <- all
				return
			case <-beat.C:
			}
			d := newReminder(fmt.Sprintf("rem-b27-%d", len(all)))
			all = append(all, d)
			requests.Go(func() {
				a, err := behind.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
				if err != nil || !isAck(a) && !isNack(a) {
					t.Errorf("%s: %s, %v", d["reminder_id"], a, err)
				}
			})
		}
	}()
	for range *rolloutRounds {
		for i, old := range replicas {
			waitUntil(t, 30*time.Second, "both replicas serve requests", b.bothBusy)
			if err := old.stop(); err != nil {
				t.Errorf("exit: %v", err)
			}
			replicas[i] = serve(t, c)
			b.add(replicas[i])
		}
	}
	close(over)
	all := <-delivered
	for _, fault := range b.faults() {
		t.Error(fault)
	}
	for _, d := range all {
		behind.pushUntilAcked(d, 20*time.Second)
	}
	if left := replicas[0].list(url.Values{"state": {"sending"}}); len(left) != 0 {
		t.Errorf("%d are still in flight: %+v", len(left), left[0])
	}
	if got := p.counts(); got.Calls != len(all) || got.Accepts != len(all) || len(got.Keys) != len(all) {
		t.Errorf("%d calls, %d accepted, %d keys of %d reminders", got.Calls, got.Accepts, len(got.Keys), len(all))
	}
	t.Logf("%d reminders", len(all))
}

// maxMisses is the number of failed checks in a row that take a replica out of the balancer.
const maxMisses = 3

// balancer distributes requests over the replicas that report ready. It never retries a request.
type balancer struct {
	url string
	t   *testing.T

	mu        sync.Mutex
	backends  []*backend
	next      int
	faultList []string
}

type backend struct {
	proxy    *httputil.ReverseProxy
	missed   int // failed checks in a row; under the balancer's mu, like the next field
	requests int
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{t: t}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// add adds a replica, and returns when it is in use.
func (b *balancer) add(g *gateway) {
	b.t.Helper()
	at, err := url.Parse(g.url)
	if err != nil {
		b.t.Fatal(err)
	}
	one := &backend{missed: maxMisses, proxy: httputil.NewSingleHostReverseProxy(at)}
	one.proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 20 * time.Second}
	one.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		b.recordFault(fmt.Sprintf("%s: %v", at.Host, err))
		w.WriteHeader(http.StatusBadGateway)
	}
	b.mu.Lock()
	b.backends = append(b.backends, one)
	b.mu.Unlock()
	checkClient := &http.Client{Timeout: time.Second}
	checkReady := func() bool {
		resp, err := checkClient.Get(g.opsURL + "/readyz")
		ready := err == nil && resp.StatusCode == http.StatusOK
		if err == nil {
			_ = resp.Body.Close()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if one.missed++; ready {
			one.missed = 0
		}
		return ready
	}
	waitUntil(b.t, 20*time.Second, "it is ready", checkReady)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-g.ended: // its checks have failed for long
				return
			case <-tick.C:
				checkReady()
			}
		}
	}()
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := b.pick()
	if one == nil {
		b.recordFault("no replica is ready")
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	one.proxy.ServeHTTP(w, r)
}

// pick returns the next replica that is ready, or nil.
func (b *balancer) pick() *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.backends {
		b.next++
		if one := b.backends[b.next%len(b.backends)]; one.missed < maxMisses {
			one.requests++
			return one
		}
	}
	return nil
}

func (b *balancer) recordFault(fault string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faultList = append(b.faultList, fault)
}

func (b *balancer) faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.faultList
}

// bothBusy reports whether two replicas are ready and each of them has served at least ten requests.
func (b *balancer) bothBusy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	busy := 0
	for _, one := range b.backends {
		if one.missed == 0 && one.requests >= 10 {
			busy++
		}
	}
	return busy == 2
}
