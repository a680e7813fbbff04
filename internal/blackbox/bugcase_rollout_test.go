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

// go test ./internal/blackbox -run TestB27 -rollout.rounds 5 -v
var rolloutRounds = flag.Int("rollout.rounds", 1, "how often each replica is restarted")

// A receiver is down, each replica keeps the message for itself and tries again; when the receiver is back,
// each of them sends.
func TestB21ReplicasThatRetryThroughAnOutageSendOnce(t *testing.T) {
	t.Parallel()
	const tries = 3 // while the provider is away; five in a row would close its gate
	outage := func(t *testing.T, p *provider, contract map[string]any, over func(), failed string) {
		c := configure(shared(t), p).with(contract, "providers", "mail", "contract").takeover("1s").
			with(map[string]any{"base": "1s", "cap": "1s"}, "types", "default", "backoff").with(10, "types", "default", "max_attempts")
		replicas := []*gateway{serve(t, c), serve(t, c)}
		d := remind("rem-b21")
		away := true
		until(t, time.Minute, "it is sent", func() bool {
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
			s := replicas[0].of(d)
			if away && s.Entry.Attempts >= tries {
				away = false
				over()
			}
			return int(acks.Load()) == len(replicas) && s.Entry.State == "sent"
		})
		for range 3 {
			for _, g := range replicas {
				g.repeated(d, 1)
			}
		}
		s := replicas[1].of(d)
		number := 0
		for _, l := range s.Timeline {
			if l.Kind != "attempt" {
				continue
			}
			if number++; l.Number != number {
				t.Errorf("attempt %d is told as number %d", number, l.Number)
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
			t.Errorf("%d attempts are told of %d", number, s.Entry.Attempts)
		}
		if got := p.tally(d); got.Accepts != 1 || got.Bodies != 1 {
			t.Errorf("the provider saw %+v", got)
		}
	}
	t.Run("it answers 500, and honours the key", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{Idempotent: true, Modes: map[string][]string{"": {"status:500"}}})
		outage(t, p, map[string]any{"idempotent": "24h"}, func() { p.told(providertest.Control{Idempotent: true}) }, "unknown")
	})
	t.Run("nobody listens, and it ignores the key", func(t *testing.T) {
		t.Parallel()
		p, open := absent(t)
		outage(t, p, map[string]any{"blind": true}, open, "unreachable")
	})
}

// A termination signal and the removal of the address race: some are sent to a door that has just closed.
// It runs alone: readiness also tells of a machine that is too busy.
func TestB27ARollingRestartUnderLoadRefusesAndCutsNothing(t *testing.T) {
	p := startProvider(t)
	p.told(providertest.Control{LatencyMin: 300 * time.Millisecond, LatencyMax: 800 * time.Millisecond})
	c := configure(shared(t), p).with("2s", "drain").with("30s", "lease").with(map[string]any{"blind": true}, "providers", "mail", "contract").
		with("10s", "sources", "queue", "answer_within")
	b := balance(t)
	replicas := []*gateway{serve(t, c), serve(t, c)}
	for _, g := range replicas {
		b.follow(g)
	}
	behind := &gateway{t: t, url: b.url}

	over := make(chan struct{})
	brought := make(chan []document)
	go func() {
		var all []document
		var requests sync.WaitGroup
		beat := time.NewTicker(20 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-over:
				requests.Wait()
				brought <- all
				return
			case <-beat.C:
			}
			d := remind(fmt.Sprintf("rem-b27-%d", len(all)))
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
			until(t, 30*time.Second, "both are at work", b.busy)
			if err := old.stop(); err != nil {
				t.Errorf("exit: %v", err)
			}
			replicas[i] = serve(t, c)
			b.follow(replicas[i])
		}
	}
	close(over)
	all := <-brought
	for _, fault := range b.faults() {
		t.Error(fault)
	}
	for _, d := range all {
		behind.acked(d, 20*time.Second)
	}
	if left := replicas[0].list(url.Values{"state": {"sending"}}); len(left) != 0 {
		t.Errorf("%d are left in flight: %+v", len(left), left[0])
	}
	if got := p.counts(); got.Calls != len(all) || got.Accepts != len(all) || len(got.Keys) != len(all) {
		t.Errorf("%d calls, %d accepted, %d keys of %d reminders", got.Calls, got.Accepts, len(got.Keys), len(all))
	}
	t.Logf("%d reminders", len(all))
}

// misses is how many looks in a row take a replica out of the balance.
const misses = 3

// balancer spreads requests over the replicas that say that they are ready. It tries nothing twice.
type balancer struct {
	url string
	t   *testing.T

	mu       sync.Mutex
	backends []*backend
	turn     int
	wrong    []string
}

type backend struct {
	proxy  *httputil.ReverseProxy
	missed int // looks in a row at which it was not ready; under the balancer's mu, as what follows
	asked  int
}

func balance(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{t: t}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// follow takes a replica in, and returns when it is in use.
func (b *balancer) follow(g *gateway) {
	b.t.Helper()
	at, err := url.Parse(g.url)
	if err != nil {
		b.t.Fatal(err)
	}
	one := &backend{missed: misses, proxy: httputil.NewSingleHostReverseProxy(at)}
	one.proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 20 * time.Second}
	one.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		b.note(fmt.Sprintf("%s: %v", at.Host, err))
		w.WriteHeader(http.StatusBadGateway)
	}
	b.mu.Lock()
	b.backends = append(b.backends, one)
	b.mu.Unlock()
	looker := &http.Client{Timeout: time.Second}
	look := func() bool {
		resp, err := looker.Get(g.ops + "/readyz")
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
	until(b.t, 20*time.Second, "it is ready", look)
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-g.ended: // it has missed its looks for long
				return
			case <-tick.C:
				look()
			}
		}
	}()
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one := b.pick()
	if one == nil {
		b.note("nobody is ready")
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	one.proxy.ServeHTTP(w, r)
}

// pick is the next that is ready.
func (b *balancer) pick() *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.backends {
		b.turn++
		if one := b.backends[b.turn%len(b.backends)]; one.missed < misses {
			one.asked++
			return one
		}
	}
	return nil
}

func (b *balancer) note(fault string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, fault)
}

func (b *balancer) faults() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}

// busy tells whether two are ready, and each of them has been asked for something.
func (b *balancer) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	busy := 0
	for _, one := range b.backends {
		if one.missed == 0 && one.asked >= 10 {
			busy++
		}
	}
	return busy == 2
}
