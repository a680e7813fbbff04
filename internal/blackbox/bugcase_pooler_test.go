package blackbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/blackbox/testbed"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// Prepared statements and session locks live on a connection to the server, and a pooler in transaction mode
// gives each transaction another one.
func TestB29APoolerInTransactionModeChangesNothing(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	pooler := server.Pooler(5)
	through := func(t *testing.T) string {
		t.Helper()
		name := strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:][:3])
		server.Query("CREATE DATABASE " + name + " TEMPLATE template0")
		u, err := url.Parse(pooler)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/" + name
		c := pooled(u.String(), &provider{address: "127.0.0.1:1"})
		if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
			t.Fatalf("migrate: %s", out)
		}
		return u.String()
	}
	t.Run("cases", func(t *testing.T) {
		for name, test := range map[string]func(t *testing.T, database string){
			"B01 twins":                            twinsShareOneCall,
			"B09 killed between record and work":   whatIsRecordedIsWork,
			"B12 stopped between record and work":  aHolderThatWakesUpCallsNobody,
			"B15 a broker that hangs up":           theRecordOutlivesTheRequest,
			"B28 more deliveries than connections": aCrowdGetsThrough,
			"cut replies to commits":               ownRowsAreKnown,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, through(t))
				if kept := server.KeptOnAConnection(); kept != "" { // while the gateway is still there
					t.Error(kept)
				}
			})
		}
	})
}

// pooled is a configuration behind a pooler, with an honest channel for each contract.
func pooled(database string, p *provider) config {
	return configure(database, p).with(true, "database", "pooler").with(20, "database", "max_conns").takeover("1s").
		lane("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).lane("blind", p.url(), "2s", map[string]any{"blind": true})
}

func twinsShareOneCall(t *testing.T, database string) {
	p := startProvider(t)
	p.told(providertest.Control{LatencyMin: time.Second})
	g := serve(t, pooled(database, p))
	d := remind("rem").but("channel", "blind")
	parallel(twins, func(int) {
		if a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String())); err != nil || !isAck(a) && !isNack(a) {
			t.Errorf("%s, %v", a, err)
		}
	})
	g.acked(d, 20*time.Second)
	if e := g.stands(d, standing{"sent", "", "accepted", 1}).Entry; e.Version != 2 {
		t.Errorf("version %d: somebody else wrote", e.Version)
	}
	p.saw(d, 1, 1)
}

// whatIsRecordedIsWork : it is killed once its claim is committed, and before it knows. Nobody redelivers.
func whatIsRecordedIsWork(t *testing.T, database string) {
	p := startProvider(t)
	p.told(providertest.Control{Idempotent: true})
	c := cutting(t, database, func(write) fate { return replyHeld })
	g := serve(t, pooled(c.url, p))
	honours, blind := remind("rem-h").but("channel", "honours"), remind("rem-b").but("channel", "blind")
	for _, d := range []document{honours, blind} {
		g.pushes(d)
		c.holds(t)
	}
	g.kill()
	p.saw(honours, 0, 0)

	g = serve(t, pooled(database, p))
	g.comesTo(honours, "sent", 30*time.Second)
	p.saw(honours, 1, 1)
	// Nobody can know that it was not sent, so a person is asked.
	g.comesTo(blind, "unknown", 30*time.Second)
	for _, d := range []document{honours, blind} {
		g.repeated(d, 3)
	}
	p.saw(blind, 0, 0)
	p.saw(honours, 1, 1)
}

// aHolderThatWakesUpCallsNobody : it is stopped for longer than its lease, with a claim that stands, and
// another one does its work.
func aHolderThatWakesUpCallsNobody(t *testing.T, database string) {
	p := startProvider(t)
	p.told(providertest.Control{Idempotent: true})
	c := cutting(t, database, func(write) fate { return replyHeld })
	stopped, other := serve(t, pooled(c.url, p)), serve(t, pooled(database, p))
	honours, blind := remind("rem-h").but("channel", "honours"), remind("rem-b").but("channel", "blind")
	var answers []<-chan answer
	for _, d := range []document{honours, blind} {
		answers = append(answers, stopped.pushes(d))
		c.holds(t)
	}
	stopped.signal(syscall.SIGSTOP)
	other.acked(honours, 30*time.Second)
	other.acked(blind, 30*time.Second)
	c.plans(func(write) fate { return carried })
	close(c.let) // the replies are there when it wakes up
	stopped.signal(syscall.SIGCONT)
	for i, state := range []string{"sent", "unknown"} {
		if a := <-answers[i]; !isAck(a) || a.state() != state {
			t.Errorf("the one that woke up says %s, want %s", a, state)
		}
	}
	other.stands(honours, standing{"sent", "", "accepted", 1})
	if e := other.of(blind).Entry; e.State != "unknown" || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	p.saw(honours, 1, 1)
	p.saw(blind, 0, 0)
}

func theRecordOutlivesTheRequest(t *testing.T, database string) {
	p := startProvider(t)
	p.told(providertest.Control{LatencyMin: 700 * time.Millisecond})
	g := serve(t, pooled(database, p))
	d := remind("rem").but("channel", "blind")
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/push/queue", strings.NewReader(d.String()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+queueToken)
	gone := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		gone <- err
	}()
	until(t, 10*time.Second, "the call is in flight", func() bool { return p.tally(d).Calls == 1 })
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client should have hung up: %v", err)
	}
	g.comesTo(d, "sent", 20*time.Second)
	g.repeated(d, 3)
	p.saw(d, 1, 1)
}

func aCrowdGetsThrough(t *testing.T, database string) {
	p := startProvider(t)
	p.told(providertest.Control{LatencyMin: 200 * time.Millisecond})
	g := serve(t, pooled(database, p))
	crowd := func(i int) document { return remind(fmt.Sprintf("rem-%d", i)).but("channel", "email") }
	parallel(64, func(i int) {
		if a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(crowd(i).String())); err != nil || !isAck(a) && !isNack(a) {
			t.Errorf("%s, %v", a, err)
		}
	})
	for i := range 64 {
		g.acked(crowd(i), 20*time.Second)
		p.saw(crowd(i), 1, 1)
	}
	g.ready()
}

func ownRowsAreKnown(t *testing.T, database string) {
	n := 0
	c := cutting(t, database, func(write) fate {
		if n++; n%2 == 0 {
			return replyLost
		}
		return carried
	})
	s := startStream(t, c.url, true)
	s.wave()
	c.plans(func(write) fate { return carried })
	s.check()
	if c.cuts.Load() < 10 {
		t.Errorf("only %d replies were cut", c.cuts.Load())
	}
}
