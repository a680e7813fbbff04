package blackbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// operated is a gateway with an operator, whose addresses are gone until the provider is told otherwise: 410 makes
// each reminder a dead letter of class recipient at its first attempt.
func operated(database string, p *provider) config {
	p.plays("status:410")
	return reconciled(database, p, map[string]any{"idempotent": "24h"})
}

// dead brings so many reminders, and waits until each is a dead letter.
func (g *gateway) dead(prefix string, n int) []document {
	g.t.Helper()
	letters := make([]document, n)
	parallel(8, func(worker int) {
		for i := worker; i < n; i += 8 {
			letters[i] = remind(fmt.Sprintf("%s-%03d", prefix, i))
			if a := g.push(letters[i].String()); !isAck(a) && !isNack(a) {
				g.t.Errorf("%s: %s", letters[i]["reminder_id"], a)
			}
		}
	})
	for _, d := range letters {
		g.comesTo(d, "dead", 60*time.Second)
	}
	return letters
}

func ids(letters []document) []string {
	var all []string
	for _, d := range letters {
		all = append(all, d.identity().EntryID())
	}
	return all
}

// job is a redrive as the API shows it.
type job struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Size  int    `json:"size"`
}

// outcome is a redrive with what became of it.
type outcome struct {
	Redrive job `json:"redrive"`
	Tally   struct {
		Waiting int            `json:"waiting"`
		Sent    int            `json:"sent"`
		Pending int            `json:"pending"`
		Skipped map[string]int `json:"skipped"`
		Failed  map[string]int `json:"failed"`
	} `json:"tally"`
	Items []struct {
		Entry  string `json:"entry"`
		Result string `json:"result"`
		State  string `json:"state"`
	} `json:"items"`
}

// redrive asks for one; the key may be empty.
func (g *gateway) redrive(key string, body document) answer {
	g.t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	a, err := g.call(http.MethodPost, "/v1/admin/redrives", operator, header, []byte(body.but("reason", "the addresses are back").String()))
	if err != nil {
		g.t.Fatalf("redrive: %v", err)
	}
	return a
}

func (g *gateway) redriven(key string, body document) job {
	g.t.Helper()
	a := g.redrive(key, body)
	var started job
	if err := json.Unmarshal(a.body, &started); err != nil || a.status != http.StatusAccepted && a.status != http.StatusOK {
		g.t.Fatalf("redrive: %s, %v", a, err)
	}
	return started
}

func (g *gateway) outcome(id string) outcome {
	g.t.Helper()
	a := g.get("/v1/admin/redrives/" + id)
	var o outcome
	if err := json.Unmarshal(a.body, &o); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("redrive %s: %s, %v", id, a, err)
	}
	return o
}

// ends waits until a redrive has ended and what it put to work has come to rest.
func (g *gateway) ends(id string, within time.Duration) outcome {
	g.t.Helper()
	var o outcome
	until(g.t, within, "redrive "+id+" ends", func() bool {
		o = g.outcome(id)
		return o.Redrive.State != "running" && o.Tally.Pending == 0
	})
	return o
}

var gone = document{"filter": document{"class": "recipient"}, "rate": 100, "limit": 1000}

func TestTheSameBatchTwiceIsSentOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, operated(database, p))
		letters := g.dead("batch", 20)
		p.plays(providertest.OK)

		var foreseen outcome
		preview := g.redrive("", gone.but("dry_run", true))
		if err := json.Unmarshal(preview.body, &foreseen); err != nil || preview.status != http.StatusOK || len(foreseen.Items) != 20 {
			t.Fatalf("dry run: %s, %v", preview, err)
		}
		for _, item := range foreseen.Items {
			if item.Result != "reopened" {
				t.Errorf("foreseen: %+v", item)
			}
		}
		for _, d := range letters {
			p.called(d, 1)
		}

		first := g.redriven("batch-1", gone)
		if again := g.redrive("batch-1", gone); again.status != http.StatusOK || !strings.Contains(string(again.body), first.ID) {
			t.Errorf("the same key: %s", again)
		}
		if other := g.redrive("batch-1", gone.but("limit", 5)); other.status != http.StatusConflict {
			t.Errorf("another request under the key: %s", other)
		}
		if o := g.ends(first.ID, 60*time.Second); o.Tally.Sent != 20 || o.Redrive.State != "done" {
			t.Errorf("%+v", o)
		}
		second := g.redriven("batch-2", document{"ids": ids(letters), "rate": 100})
		if o := g.ends(second.ID, 60*time.Second); o.Tally.Skipped["already_sent"] != 20 || o.Tally.Sent != 0 {
			t.Errorf("%+v", o)
		}
		for _, d := range letters {
			p.saw(d, 2, 1)
		}
		if s := g.of(letters[0]); !slices.Contains(s.reasons(), "redriven") {
			t.Errorf("the timeline does not tell: %v", s.reasons())
		}
		g.shows(`sendonce_redriven_total{result="reopened"}`, "20")
		g.shows(`sendonce_redriven_total{result="already_sent"}`, "20")
	})
}

func TestARedriveThatIsKilledInTheMiddleGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		const letters = 500
		p := startProvider(t)
		c := operated(database, p)
		g := serve(t, c)
		all := g.dead("kill", letters)
		p.plays(providertest.OK)
		started := g.redriven("kill", gone.but("rate", 50))
		until(t, 60*time.Second, "a part of it is done", func() bool { return g.outcome(started.ID).Tally.Waiting < letters-100 })
		g.kill()
		if p.counts().Calls >= 2*letters {
			t.Fatal("it was over before the kill")
		}
		g = serve(t, c)
		o := g.ends(started.ID, 120*time.Second)
		if o.Redrive.State != "done" || o.Tally.Sent != letters || len(o.Items) != letters {
			t.Errorf("%+v, %+v", o.Redrive, o.Tally)
		}
		p.acceptsOnce()
		for _, d := range all {
			if got := p.tally(d); got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
	})
}

func TestACancelStopsTheRestOfARedrive(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, operated(database, p))
		g.dead("cancel", 60)
		p.plays(providertest.OK)
		started := g.redriven("", gone.but("rate", 5))
		until(t, 30*time.Second, "some are under way", func() bool { return g.outcome(started.ID).Tally.Waiting <= 50 })
		if a := g.operate("/v1/admin/redrives/"+started.ID+"/cancel", document{"reason": "the wrong batch"}); a.status != http.StatusOK {
			t.Fatalf("cancel: %s", a)
		}
		at := g.outcome(started.ID).Tally.Waiting
		o := g.ends(started.ID, 30*time.Second)
		if o.Redrive.State != "cancelled" || o.Tally.Waiting < at-5 || o.Tally.Waiting < 30 || o.Tally.Sent != 60-o.Tally.Waiting {
			t.Errorf("%d waited when it was cancelled: %+v, %+v", at, o.Redrive, o.Tally)
		}
		left := g.ends(g.redriven("", gone).ID, 60*time.Second) // what it left can be redriven
		if left.Tally.Sent != o.Tally.Waiting {
			t.Errorf("%d were left, then %+v", o.Tally.Waiting, left.Tally)
		}
		p.acceptsOnce()
	})
}

func TestFiftyRacingRedrivesSendEachOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	c := operated(shared(t), p)
	a, b := serve(t, c), serve(t, c)
	letters := a.dead("race", 20)
	p.plays(providertest.OK)
	jobs := make([]job, 50)
	parallel(50, func(i int) {
		g := []*gateway{a, b}[i%2]
		jobs[i] = g.redriven("", document{"ids": ids(letters), "rate": 100})
	})
	sent := 0
	for _, j := range jobs {
		o := a.ends(j.ID, 120*time.Second)
		if o.Tally.Waiting != 0 || len(o.Tally.Failed) != 0 {
			t.Errorf("%+v", o.Tally)
		}
		sent += o.Tally.Sent
	}
	for _, d := range letters {
		p.saw(d, 2, 1)
	}
	if sent != len(letters) {
		t.Errorf("the redrives together claim %d sends of %d", sent, len(letters))
	}
}

// B30: the same failed message in a batch, in the same batch again, and singly, all at once; then all of it anew.
func TestB30WhatIsRedrivenTwiceOrAfterSuccessIsSentOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, operated(database, p))
		letters := g.dead("rem-b30", 100)
		p.plays(providertest.OK)
		var answers [3]answer
		parallel(3, func(i int) {
			switch i {
			case 2:
				answers[i] = g.redrive("rq-2", document{"ids": []string{letters[17].identity().EntryID()}, "rate": 100})
			default:
				answers[i] = g.redrive("rq-1", gone.but("limit", 100))
			}
		})
		var started [3]job
		for i, a := range answers {
			if err := json.Unmarshal(a.body, &started[i]); err != nil || started[i].ID == "" {
				t.Fatalf("%s, %v", a, err)
			}
		}
		if started[0].ID != started[1].ID {
			t.Errorf("one key, two redrives: %s and %s", started[0].ID, started[1].ID)
		}
		batch, single := g.ends(started[0].ID, 120*time.Second), g.ends(started[2].ID, 120*time.Second)
		if batch.Tally.Sent+single.Tally.Sent < 100 || batch.Tally.Sent+single.Tally.Sent > 101 {
			t.Errorf("%+v and %+v", batch.Tally, single.Tally)
		}
		everything := g.ends(g.redriven("", document{"ids": ids(letters), "rate": 100}).ID, 120*time.Second)
		if everything.Tally.Skipped["already_sent"] != 100 {
			t.Errorf("%+v", everything.Tally)
		}
		for _, d := range letters {
			p.saw(d, 2, 1)
		}
	})
}

// B31: what is dead is acked, and is one row however often its broker brings it.
func TestB31ADeadLetterIsOneRowHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, operated(database, p))
		d := g.dead("rem-b31", 1)[0]
		g.repeated(d, 20)
		p.called(d, 1)
		a := g.get("/v1/admin/dead-letters")
		if n := strings.Count(string(a.body), `"reminder_id":"rem-b31-000"`); a.status != http.StatusOK || n != 1 {
			t.Errorf("%d rows: %s", n, a)
		}
		g.counted("sendonce_duplicates_total", 20)
	})
}

// B32: what is refused for good does not go round for ever: three redrives by name, then it is parked.
func TestB32ADeadLetterIsParkedAfterItsRedrives(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		c := operated(database, p)
		p.plays("status:400")
		g := serve(t, c)
		d := g.dead("rem-b32", 1)[0]
		byName := document{"ids": ids([]document{d}), "rate": 100}
		if o := g.ends(g.redriven("", byName).ID, 30*time.Second); o.Tally.Skipped["permanent"] != 1 {
			t.Errorf("nobody asked for what is refused for good: %+v", o.Tally)
		}
		for turn := 1; turn <= 5; turn++ {
			o := g.ends(g.redriven("", byName.but("permanent", true)).ID, 30*time.Second)
			if failed, parked := o.Tally.Failed["permanent"], o.Tally.Skipped["parked"]; turn <= 3 && failed != 1 || turn > 3 && parked != 1 {
				t.Errorf("redrive %d: %+v", turn, o.Tally)
			}
		}
		p.called(d, 4)
		g.stands(d, standing{"dead", "permanent", "refused", 4})
	})
}

// B16: what may have been sent is not redriven.
func TestB16ARedriveLeavesWhatMayHaveBeenSentAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, reconciled(database, p, blind()))
		p.plays(providertest.AcceptReset)
		d := remind("rem-b16")
		g.acked(d, 10*time.Second)
		g.stands(d, standing{"unknown", "unknown", "unanswered", 1})
		p.plays(providertest.OK)
		o := g.ends(g.redriven("", document{"ids": ids([]document{d}), "rate": 100}).ID, 30*time.Second)
		if o.Tally.Skipped["unknown"] != 1 {
			t.Errorf("%+v", o.Tally)
		}
		g.repeated(d, 5)
		p.saw(d, 1, 1)
		g.stands(d, standing{"unknown", "unknown", "unanswered", 1})
	})
}

// What a broker gave up on comes by a source of its own: what waits for that broker is the ledger's at once, and what
// is not known is kept for an operator.
func TestWhatABrokerGaveUpOnIsKeptForAnOperator(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.plays("throttle:1")
		c := reconciled(database, p, map[string]any{"idempotent": "24h"}).with(map[string]any{
			"format": "plain", "auth": map[string]any{"bearer": map[string]any{"tokens": []string{queueToken}}},
			"max_age": "7d", "deadletter": true,
		}, "sources", "queue-dead")
		g := serve(t, c)
		gaveUp := func(d document) {
			a, err := g.call(http.MethodPost, "/v1/push/queue-dead", queueToken, nil, []byte(d.String()))
			if err != nil || a.status != http.StatusOK {
				t.Errorf("%s: %s, %v", d["reminder_id"], a, err)
			}
		}
		waiting, lost := remind("rem-waiting"), remind("rem-lost")
		g.nacked(waiting)
		gaveUp(waiting)
		gaveUp(lost)
		gaveUp(lost)
		g.stands(lost, standing{"dead", "broker", "given_up", 0})
		p.plays(providertest.OK)
		g.comesTo(waiting, "sent", 30*time.Second) // nobody redelivers it
		if s := g.of(waiting); !slices.Contains(s.reasons(), "taken_over") {
			t.Errorf("the timeline does not tell: %v", s.reasons())
		}
		p.called(lost, 0)
		o := g.ends(g.redriven("", document{"filter": document{"class": "broker"}, "rate": 100}).ID, 30*time.Second)
		if o.Tally.Sent != 1 || len(o.Items) != 1 {
			t.Errorf("%+v", o)
		}
		p.saw(lost, 1, 1)
	})
}

func TestAPausedProviderHoldsWorkAndLosesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.plays(providertest.OK)
		g := serve(t, reconciled(database, p, map[string]any{"idempotent": "24h"}).takeover("1s"))
		if a := g.operate("/v1/admin/providers/mail/pause", document{"reason": "they asked for it"}); a.status != http.StatusOK {
			t.Fatalf("pause: %s", a)
		}
		var held []document
		for _, id := range []string{"rem-p1", "rem-p2", "rem-p3"} {
			d := remind(id)
			held = append(held, d)
			g.nacked(d)
		}
		for _, d := range held {
			until(t, 60*time.Second, "the ledger has taken it over", func() bool { return g.of(d).Entry.Owner == "ledger" })
			if e := g.of(d).Entry; e.State != "waiting" || e.Attempts != 0 {
				t.Errorf("%s: %+v", d["reminder_id"], e)
			}
			p.called(d, 0)
		}
		g.shows(`sendonce_gate_closed{provider="mail"}`, "1")
		if a := g.operate("/v1/admin/providers/mail/resume", document{"reason": "they are well"}); a.status != http.StatusOK {
			t.Fatalf("resume: %s", a)
		}
		for _, d := range held {
			g.comesTo(d, "sent", 60*time.Second)
			p.saw(d, 1, 1)
		}
	})
}
