package blackbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// redriveConfig is a configuration with an operator, whose provider answers 410 until told otherwise: each
// reminder becomes a dead letter of class recipient at its first attempt.
func redriveConfig(database string, p *provider) config {
	p.setModes("status:410")
	return reconcileConfig(database, p, map[string]any{"idempotent": "24h"})
}

// makeDeadLetters delivers n reminders, and waits until each is a dead letter.
func (g *gateway) makeDeadLetters(prefix string, n int) []document {
	g.t.Helper()
	deadLetters := make([]document, n)
	parallel(8, func(worker int) {
		for i := worker; i < n; i += 8 {
			deadLetters[i] = newReminder(fmt.Sprintf("%s-%03d", prefix, i))
			if a := g.push(deadLetters[i].String()); !isAck(a) && !isNack(a) {
				g.t.Errorf("%s: %s", deadLetters[i]["reminder_id"], a)
			}
		}
	})
	for _, d := range deadLetters {
		g.waitForState(d, "dead", 60*time.Second)
	}
	return deadLetters
}

func entryIDs(deadLetters []document) []string {
	var all []string
	for _, d := range deadLetters {
		all = append(all, d.identity().EntryID())
	}
	return all
}

// redriveSummary is a redrive as the API shows it.
type redriveSummary struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Size  int    `json:"size"`
}

// redriveDetail is a redrive with the results of its items.
type redriveDetail struct {
	Redrive redriveSummary `json:"redrive"`
	Counts  struct {
		Waiting int            `json:"waiting"`
		Sent    int            `json:"sent"`
		Pending int            `json:"pending"`
		Skipped map[string]int `json:"skipped"`
		Failed  map[string]int `json:"failed"`
	} `json:"counts"`
	Items []struct {
		Entry  string `json:"entry"`
		Result string `json:"result"`
		State  string `json:"state"`
	} `json:"items"`
}

// redrive requests a redrive; the idempotency key may be empty.
func (g *gateway) redrive(key string, body document) answer {
	g.t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	a, err := g.call(http.MethodPost, "/v1/admin/redrives", operatorToken, header, []byte(body.with("reason", "the addresses are back").String()))
	if err != nil {
		g.t.Fatalf("redrive: %v", err)
	}
	return a
}

func (g *gateway) startRedrive(key string, body document) redriveSummary {
	g.t.Helper()
	a := g.redrive(key, body)
	var started redriveSummary
	if err := json.Unmarshal(a.body, &started); err != nil || a.status != http.StatusAccepted && a.status != http.StatusOK {
		g.t.Fatalf("redrive: %s, %v", a, err)
	}
	return started
}

func (g *gateway) redriveDetail(id string) redriveDetail {
	g.t.Helper()
	a := g.get("/v1/admin/redrives/" + id)
	var o redriveDetail
	if err := json.Unmarshal(a.body, &o); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("redrive %s: %s, %v", id, a, err)
	}
	return o
}

// waitRedriveEnd waits until a redrive has ended and its items are settled.
func (g *gateway) waitRedriveEnd(id string, within time.Duration) redriveDetail {
	g.t.Helper()
	var o redriveDetail
	waitUntil(g.t, within, "redrive "+id+" ends", func() bool {
		o = g.redriveDetail(id)
		return o.Redrive.State != "running" && o.Counts.Pending == 0
	})
	return o
}

var recipientBatch = document{"filter": document{"class": "recipient"}, "rate": 100, "limit": 1000}

func TestRedrive_SameBatchTwiceIsSentOnce(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, redriveConfig(database, p))
		deadLetters := g.makeDeadLetters("batch", 20)
		p.setModes(providertest.OK)

		var expected redriveDetail
		preview := g.redrive("", recipientBatch.with("dry_run", true))
		if err := json.Unmarshal(preview.body, &expected); err != nil || preview.status != http.StatusOK || len(expected.Items) != 20 {
			t.Fatalf("dry run: %s, %v", preview, err)
		}
		for _, item := range expected.Items {
			if item.Result != "redriven" {
				t.Errorf("expected by the dry run: %+v", item)
			}
		}
		for _, d := range deadLetters {
			p.checkCallCount(d, 1)
		}

		first := g.startRedrive("batch-1", recipientBatch)
		if again := g.redrive("batch-1", recipientBatch); again.status != http.StatusOK || !strings.Contains(string(again.body), first.ID) {
			t.Errorf("the same key: %s", again)
		}
		if other := g.redrive("batch-1", recipientBatch.with("limit", 5)); other.status != http.StatusConflict {
			t.Errorf("another request under the key: %s", other)
		}
		if o := g.waitRedriveEnd(first.ID, 60*time.Second); o.Counts.Sent != 20 || o.Redrive.State != "done" {
			t.Errorf("%+v", o)
		}
		second := g.startRedrive("batch-2", document{"ids": entryIDs(deadLetters), "rate": 100})
		if o := g.waitRedriveEnd(second.ID, 60*time.Second); o.Counts.Skipped["already_sent"] != 20 || o.Counts.Sent != 0 {
			t.Errorf("%+v", o)
		}
		for _, d := range deadLetters {
			p.checkCalls(d, 2, 1)
		}
		if s := g.detail(deadLetters[0]); !slices.Contains(s.reasons(), "redriven") {
			t.Errorf("not recorded in the timeline: %v", s.reasons())
		}
		g.waitForMetric(`sendonce_redriven_total{result="redriven"}`, "20")
		g.waitForMetric(`sendonce_redriven_total{result="already_sent"}`, "20")
	})
}

func TestRedrive_ResumesAfterAKill(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		const deadLetters = 500
		p := startProvider(t)
		c := redriveConfig(database, p)
		g := serve(t, c)
		all := g.makeDeadLetters("kill", deadLetters)
		// The kill may hit dead letters that the provider has accepted without the ledger having recorded it.
		// They are called again, under the same key, so the provider must honour it, as its contract says.
		p.setControl(providertest.Control{Idempotent: true, Modes: map[string][]string{"": {providertest.OK}}})
		started := g.startRedrive("kill", recipientBatch.with("rate", 50))
		waitUntil(t, 60*time.Second, "some items are done", func() bool { return g.redriveDetail(started.ID).Counts.Waiting < deadLetters-100 })
		g.kill()
		if p.counts().Calls >= 2*deadLetters {
			t.Fatal("the redrive had ended before the kill")
		}
		g = serve(t, c)
		o := g.waitRedriveEnd(started.ID, 120*time.Second)
		if o.Redrive.State != "done" || o.Counts.Sent != deadLetters || len(o.Items) != deadLetters {
			t.Errorf("%+v, %+v", o.Redrive, o.Counts)
		}
		p.checkAcceptedOnce()
		for _, d := range all {
			if got := p.countsFor(d); got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
	})
}

func TestRedrive_CancelStopsTheRest(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, redriveConfig(database, p))
		g.makeDeadLetters("cancel", 60)
		p.setModes(providertest.OK)
		started := g.startRedrive("", recipientBatch.with("rate", 5))
		waitUntil(t, 30*time.Second, "some items are in progress", func() bool { return g.redriveDetail(started.ID).Counts.Waiting <= 50 })
		if a := g.operatorPost("/v1/admin/redrives/"+started.ID+"/cancel", document{"reason": "the wrong batch"}); a.status != http.StatusOK {
			t.Fatalf("cancel: %s", a)
		}
		at := g.redriveDetail(started.ID).Counts.Waiting
		// An item that was in progress at the cancel is redriven, and reported so.
		waitUntil(t, 10*time.Second, "the report agrees with the ledger", func() bool {
			return g.redriveDetail(started.ID).Counts.Waiting == len(g.list(url.Values{"state": {"dead"}}))
		})
		o := g.waitRedriveEnd(started.ID, 30*time.Second)
		if o.Redrive.State != "cancelled" || o.Counts.Waiting < at-5 || o.Counts.Waiting < 30 || o.Counts.Sent != 60-o.Counts.Waiting {
			t.Errorf("%d waited when it was cancelled: %+v, %+v", at, o.Redrive, o.Counts)
		}
		left := g.waitRedriveEnd(g.startRedrive("", recipientBatch).ID, 60*time.Second) // the remaining dead letters can be redriven
		if left.Counts.Sent != o.Counts.Waiting {
			t.Errorf("%d were left, then %+v", o.Counts.Waiting, left.Counts)
		}
		p.checkAcceptedOnce()
	})
}

func TestRedrive_FiftyConcurrentSendEachOnce(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	c := redriveConfig(newPostgres(t), p)
	a, b := serve(t, c), serve(t, c)
	deadLetters := a.makeDeadLetters("race", 20)
	p.setModes(providertest.OK)
	jobs := make([]redriveSummary, 50)
	parallel(50, func(i int) {
		g := []*gateway{a, b}[i%2]
		jobs[i] = g.startRedrive("", document{"ids": entryIDs(deadLetters), "rate": 100})
	})
	sent := 0
	for _, j := range jobs {
		o := a.waitRedriveEnd(j.ID, 120*time.Second)
		if o.Counts.Waiting != 0 || len(o.Counts.Failed) != 0 {
			t.Errorf("%+v", o.Counts)
		}
		sent += o.Counts.Sent
	}
	for _, d := range deadLetters {
		p.checkCalls(d, 2, 1)
	}
	if sent != len(deadLetters) {
		t.Errorf("the redrives together claim %d sends of %d", sent, len(deadLetters))
	}
}

// Bug: the same failed message is redriven in a batch, in the same batch again, and singly, all concurrently;
// then all of it again.
func TestB30_RedrivenTwiceOrAfterSuccessIsSentOnce(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, redriveConfig(database, p))
		deadLetters := g.makeDeadLetters("rem-b30", 100)
		p.setModes(providertest.OK)
		var answers [3]answer
		parallel(3, func(i int) {
			switch i {
			case 2:
				answers[i] = g.redrive("rq-2", document{"ids": []string{deadLetters[17].identity().EntryID()}, "rate": 100})
			default:
				answers[i] = g.redrive("rq-1", recipientBatch.with("limit", 100))
			}
		})
		var started [3]redriveSummary
		for i, a := range answers {
			if err := json.Unmarshal(a.body, &started[i]); err != nil || started[i].ID == "" {
				t.Fatalf("%s, %v", a, err)
			}
		}
		if started[0].ID != started[1].ID {
			t.Errorf("one key, two redrives: %s and %s", started[0].ID, started[1].ID)
		}
		batch, single := g.waitRedriveEnd(started[0].ID, 120*time.Second), g.waitRedriveEnd(started[2].ID, 120*time.Second)
		if batch.Counts.Sent+single.Counts.Sent < 100 || batch.Counts.Sent+single.Counts.Sent > 101 {
			t.Errorf("%+v and %+v", batch.Counts, single.Counts)
		}
		everything := g.waitRedriveEnd(g.startRedrive("", document{"ids": entryIDs(deadLetters), "rate": 100}).ID, 120*time.Second)
		if everything.Counts.Skipped["already_sent"] != 100 {
			t.Errorf("%+v", everything.Counts)
		}
		for _, d := range deadLetters {
			p.checkCalls(d, 2, 1)
		}
	})
}

// Bug: a dead letter must be acked, and be one row however often its broker redelivers it.
func TestB31_DeadLetterIsOneRowHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, redriveConfig(database, p))
		d := g.makeDeadLetters("rem-b31", 1)[0]
		g.redeliver(d, 20)
		p.checkCallCount(d, 1)
		a := g.get("/v1/admin/dead-letters")
		if n := strings.Count(string(a.body), `"reminder_id":"rem-b31-000"`); a.status != http.StatusOK || n != 1 {
			t.Errorf("%d rows: %s", n, a)
		}
		g.checkMetric("sendonce_duplicates_total", 20)
	})
}

// Bug: a permanent refusal must not be redriven for ever: after three redrives by id it is parked.
func TestB32_DeadLetterIsParkedAfterItsRedrives(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		c := redriveConfig(database, p)
		p.setModes("status:400")
		g := serve(t, c)
		d := g.makeDeadLetters("rem-b32", 1)[0]
		byID := document{"ids": entryIDs([]document{d}), "rate": 100}
		if o := g.waitRedriveEnd(g.startRedrive("", byID).ID, 30*time.Second); o.Counts.Skipped["permanent"] != 1 {
			t.Errorf("a permanent refusal was redriven without permanent: true: %+v", o.Counts)
		}
		for turn := 1; turn <= 5; turn++ {
			o := g.waitRedriveEnd(g.startRedrive("", byID.with("permanent", true)).ID, 30*time.Second)
			if failed, parked := o.Counts.Failed["permanent"], o.Counts.Skipped["parked"]; turn <= 3 && failed != 1 || turn > 3 && parked != 1 {
				t.Errorf("redrive %d: %+v", turn, o.Counts)
			}
		}
		p.checkCallCount(d, 4)
		g.checkState(d, entryState{"dead", "permanent", "refused", 4})
	})
}

// Bug: what may have been sent must not be redriven.
func TestB16_RedriveLeavesWhatMayHaveBeenSentAlone(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, reconcileConfig(database, p, blindContract()))
		p.setModes(providertest.AcceptReset)
		d := newReminder("rem-b16")
		g.pushUntilAcked(d, 10*time.Second)
		g.checkState(d, entryState{"unknown", "unknown", "unanswered", 1})
		p.setModes(providertest.OK)
		o := g.waitRedriveEnd(g.startRedrive("", document{"ids": entryIDs([]document{d}), "rate": 100}).ID, 30*time.Second)
		if o.Counts.Skipped["unknown"] != 1 {
			t.Errorf("%+v", o.Counts)
		}
		g.redeliver(d, 5)
		p.checkCalls(d, 1, 1)
		g.checkState(d, entryState{"unknown", "unknown", "unanswered", 1})
	})
}

// Messages that a broker dead-lettered arrive at a source of their own: an entry that waits for that broker
// becomes the ledger's at once, and an unknown message is kept for an operator.
func TestDeadLetterSource_KeepsEntriesForAnOperator(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.setModes("throttle:1")
		c := reconcileConfig(database, p, map[string]any{"idempotent": "24h"}).with(map[string]any{
			"format": "plain", "auth": map[string]any{"bearer": map[string]any{"tokens": []string{queueToken}}},
			"max_age": "7d", "deadletter": true,
		}, "sources", "queue-dead")
		g := serve(t, c)
		deadLetter := func(d document) {
			a, err := g.call(http.MethodPost, "/v1/push/queue-dead", queueToken, nil, []byte(d.String()))
			if err != nil || a.status != http.StatusOK {
				t.Errorf("%s: %s, %v", d["reminder_id"], a, err)
			}
		}
		waiting, lost := newReminder("rem-waiting"), newReminder("rem-lost")
		g.pushExpectNack(waiting)
		deadLetter(waiting)
		deadLetter(lost)
		deadLetter(lost)
		g.checkState(lost, entryState{"dead", "broker", "dead_lettered", 0})
		p.setModes(providertest.OK)
		g.waitForState(waiting, "sent", 30*time.Second) // nothing is redelivered
		if s := g.detail(waiting); !slices.Contains(s.reasons(), "taken_over") {
			t.Errorf("not recorded in the timeline: %v", s.reasons())
		}
		p.checkCallCount(lost, 0)
		o := g.waitRedriveEnd(g.startRedrive("", document{"filter": document{"class": "broker"}, "rate": 100}).ID, 30*time.Second)
		if o.Counts.Sent != 1 || len(o.Items) != 1 {
			t.Errorf("%+v", o)
		}
		p.checkCalls(lost, 1, 1)
	})
}

func TestPause_HoldsWorkAndLosesNothing(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.setModes(providertest.OK)
		g := serve(t, reconcileConfig(database, p, map[string]any{"idempotent": "24h"}).withTakeover("1s"))
		if a := g.operatorPost("/v1/admin/providers/mail/pause", document{"reason": "they asked for it"}); a.status != http.StatusOK {
			t.Fatalf("pause: %s", a)
		}
		var held []document
		for _, id := range []string{"rem-p1", "rem-p2", "rem-p3"} {
			d := newReminder(id)
			held = append(held, d)
			g.pushExpectNack(d)
		}
		for _, d := range held {
			waitUntil(t, 60*time.Second, "the ledger has taken it over", func() bool { return g.detail(d).Entry.Owner == "ledger" })
			if e := g.detail(d).Entry; e.State != "waiting" || e.Attempts != 0 {
				t.Errorf("%s: %+v", d["reminder_id"], e)
			}
			p.checkCallCount(d, 0)
		}
		g.waitForMetric(`sendonce_gate_closed{provider="mail"}`, "1")
		if a := g.operatorPost("/v1/admin/providers/mail/resume", document{"reason": "they are well"}); a.status != http.StatusOK {
			t.Fatalf("resume: %s", a)
		}
		for _, d := range held {
			g.waitForState(d, "sent", 60*time.Second)
			p.checkCalls(d, 1, 1)
		}
	})
}
