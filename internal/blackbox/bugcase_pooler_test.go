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

// Bug: prepared statements and session locks belong to one server connection, and a pooler in transaction
// mode gives each transaction another one.
func TestB29_TransactionModePoolerChangesNothing(t *testing.T) {
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
		c := poolerConfig(u.String(), &provider{address: "127.0.0.1:1"})
		if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
			t.Fatalf("migrate: %s", out)
		}
		return u.String()
	}
	t.Run("cases", func(t *testing.T) {
		for name, test := range map[string]func(t *testing.T, database string){
			"B01 identical deliveries":              testIdenticalDeliveries,
			"B09 killed between record and call":    testKilledAfterClaim,
			"B12 suspended between record and call": testStoppedAfterClaim,
			"B15 a broker that hangs up":            testClientHangsUp,
			"B28 more deliveries than connections":  testManyDeliveries,
			"lost replies to commits":               testLostReplies,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, through(t))
				if kept := server.ForbiddenSessionState(); kept != "" { // while the gateway is still connected
					t.Error(kept)
				}
			})
		}
	})
}

// poolerConfig returns a configuration for a database behind a pooler, with a channel for each contract.
func poolerConfig(database string, p *provider) config {
	return configure(database, p).with(true, "database", "pooler").with(20, "database", "max_conns").withTakeover("1s").
		withProvider("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).withProvider("blind", p.url(), "2s", map[string]any{"blind": true})
}

func testIdenticalDeliveries(t *testing.T, database string) {
	p := startProvider(t)
	p.setControl(providertest.Control{LatencyMin: time.Second})
	g := serve(t, poolerConfig(database, p))
	d := newReminder("rem").with("channel", "blind")
	parallel(identicalDeliveries, func(int) {
		if a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String())); err != nil || !isAck(a) && !isNack(a) {
			t.Errorf("%s, %v", a, err)
		}
	})
	g.pushUntilAcked(d, 20*time.Second)
	if e := g.checkState(d, entryState{"sent", "", "accepted", 1}).Entry; e.Version != 2 {
		t.Errorf("version %d: there was another write", e.Version)
	}
	p.checkCalls(d, 1, 1)
}

// testKilledAfterClaim kills the gateway once its claim is committed and before it gets the reply. Nothing is
// redelivered.
func testKilledAfterClaim(t *testing.T, database string) {
	p := startProvider(t)
	p.setControl(providertest.Control{Idempotent: true})
	c := newCutter(t, database, func(write) fault { return replyHeld })
	g := serve(t, poolerConfig(c.url, p))
	honours, blind := newReminder("rem-h").with("channel", "honours"), newReminder("rem-b").with("channel", "blind")
	for _, d := range []document{honours, blind} {
		g.pushAsync(d)
		c.waitHeld(t)
	}
	g.kill()
	p.checkCalls(honours, 0, 0)

	g = serve(t, poolerConfig(database, p))
	g.waitForState(honours, "sent", 30*time.Second)
	p.checkCalls(honours, 1, 1)
	// Nobody can know that it was not sent, so it is left to an operator.
	g.waitForState(blind, "unknown", 30*time.Second)
	for _, d := range []document{honours, blind} {
		g.redeliver(d, 3)
	}
	p.checkCalls(blind, 0, 0)
	p.checkCalls(honours, 1, 1)
}

// testStoppedAfterClaim suspends the gateway for longer than its lease, with a committed claim, while another
// gateway does its work.
func testStoppedAfterClaim(t *testing.T, database string) {
	p := startProvider(t)
	p.setControl(providertest.Control{Idempotent: true})
	c := newCutter(t, database, func(write) fault { return replyHeld })
	stopped, other := serve(t, poolerConfig(c.url, p)), serve(t, poolerConfig(database, p))
	honours, blind := newReminder("rem-h").with("channel", "honours"), newReminder("rem-b").with("channel", "blind")
	var answers []<-chan answer
	for _, d := range []document{honours, blind} {
		answers = append(answers, stopped.pushAsync(d))
		c.waitHeld(t)
	}
	stopped.signal(syscall.SIGSTOP)
	other.pushUntilAcked(honours, 30*time.Second)
	other.pushUntilAcked(blind, 30*time.Second)
	c.setPlan(func(write) fault { return noFault })
	close(c.release) // the replies are available when it resumes
	stopped.signal(syscall.SIGCONT)
	for i, state := range []string{"sent", "unknown"} {
		if a := <-answers[i]; !isAck(a) || a.state() != state {
			t.Errorf("the resumed gateway answered %s, want %s", a, state)
		}
	}
	other.checkState(honours, entryState{"sent", "", "accepted", 1})
	if e := other.detail(blind).Entry; e.State != "unknown" || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	p.checkCalls(honours, 1, 1)
	p.checkCalls(blind, 0, 0)
}

func testClientHangsUp(t *testing.T, database string) {
	p := startProvider(t)
	p.setControl(providertest.Control{LatencyMin: 700 * time.Millisecond})
	g := serve(t, poolerConfig(database, p))
	d := newReminder("rem").with("channel", "blind")
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
	waitUntil(t, 10*time.Second, "the call is in flight", func() bool { return p.countsFor(d).Calls == 1 })
	hangUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client should have hung up: %v", err)
	}
	g.waitForState(d, "sent", 20*time.Second)
	g.redeliver(d, 3)
	p.checkCalls(d, 1, 1)
}

func testManyDeliveries(t *testing.T, database string) {
	p := startProvider(t)
	p.setControl(providertest.Control{LatencyMin: 200 * time.Millisecond})
	g := serve(t, poolerConfig(database, p))
	reminder := func(i int) document { return newReminder(fmt.Sprintf("rem-%d", i)).with("channel", "email") }
	parallel(64, func(i int) {
		if a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(reminder(i).String())); err != nil || !isAck(a) && !isNack(a) {
			t.Errorf("%s, %v", a, err)
		}
	})
	for i := range 64 {
		g.pushUntilAcked(reminder(i), 20*time.Second)
		p.checkCalls(reminder(i), 1, 1)
	}
	g.waitReady()
}

func testLostReplies(t *testing.T, database string) {
	n := 0
	c := newCutter(t, database, func(write) fault {
		if n++; n%2 == 0 {
			return replyLost
		}
		return noFault
	})
	s := newStream(t, c.url, true)
	s.deliverWave()
	c.setPlan(func(write) fault { return noFault })
	s.checkAll()
	if c.cuts.Load() < 10 {
		t.Errorf("only %d replies were cut", c.cuts.Load())
	}
}
