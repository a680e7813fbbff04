package blackbox

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// Bug: an idempotency key that only takes effect once the first request has stored its result lets concurrent
// identical requests both run.
func TestB01_ConcurrentIdenticalDeliveriesAreNackedAndCounted(t *testing.T) {
	forEachStore(t, func(t *testing.T, database string) {
		forEachFlavour(t, func(t *testing.T, f flavour) {
			p := startProvider(t)
			p.setControl(providertest.Control{Idempotent: f.honours, LatencyMin: time.Second})
			g := serve(t, f.configure(database, p))
			id := "rem-b01-" + strings.ReplaceAll(f.name, " ", "-")
			d := newReminder(id)

			var acks atomic.Int32
			parallel(identicalDeliveries, func(int) {
				a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
				switch {
				case err != nil:
					t.Error(err)
				case isAck(a):
					acks.Add(1)
					if a.plainReply(t).State != "sent" {
						t.Errorf("acked before it was sent: %s", a)
					}
				case !isNack(a):
					t.Errorf("%s, Retry-After %q", a, a.header.Get("Retry-After"))
				}
			})
			if acks.Load() < 1 {
				t.Error("no delivery was acked")
			}
			if a := g.deliver(d); !isAck(a) || !a.plainReply(t).Duplicate || a.took >= time.Second {
				t.Errorf("after it was sent: %s in %v", a, a.took)
			}
			p.checkCalls(d, 1, 1)
			if e := g.detail(d).Entry; e.Attempts != 1 || e.Version != 2 {
				t.Errorf("%d attempts, version %d: there was another write", e.Attempts, e.Version)
			}
			g.checkMetric("sendonce_duplicates_total", identicalDeliveries)
		})
	})
}

// Bug: a producer that publishes one event twice gets two message ids; two producers may both use "100".
func TestB02_MessageIDsAreNeverIdentity(t *testing.T) {
	p := startProvider(t)
	issuer := startIssuer(t)
	c := issuer.withSource(configure(newSQLite(t), p), "stream")
	g := serve(t, c.with(c["sources"].(map[string]any)["queue"], "sources", "courses"))

	t.Run("one reminder under three message ids by two sources is one send", func(t *testing.T) {
		reminder := newReminder("rem-b02").String()
		issuer.push(g, "stream", pubsubEnvelope(reminder, "70010001"), http.StatusNoContent)
		issuer.push(g, "stream", pubsubEnvelope(reminder, "70010999"), http.StatusNoContent)
		g.pushPlain("queue", "100", reminder, http.StatusOK)
		p.checkCalls(newReminder("rem-b02"), 1, 1)
		g.checkMetric("sendonce_duplicates_total", 2)
		if all := g.list(url.Values{"reminder_id": {"rem-b02"}}); len(all) != 1 || all[0].State != "sent" {
			t.Errorf("entries: %+v", all)
		}
	})
	t.Run("one message id at two sources, and twice at one, suppresses no reminder", func(t *testing.T) {
		g.pushPlain("queue", "100", newReminder("rem-b02x").String(), http.StatusOK)
		g.pushPlain("courses", "100", newReminder("rem-b02y").String(), http.StatusOK)
		g.pushPlain("queue", "100", newReminder("rem-b02z").String(), http.StatusOK)
		for _, id := range []string{"rem-b02x", "rem-b02y", "rem-b02z"} {
			p.checkCalls(newReminder(id), 1, 1)
		}
	})
	t.Run("a malformed message is one dead letter for each source, message id and bytes", func(t *testing.T) {
		for _, source := range []string{"queue", "courses", "queue"} {
			for _, id := range []string{"100", "101"} {
				g.pushPlain(source, id, "no json", http.StatusOK)
			}
		}
		g.pushPlain("queue", "100", "no json either", http.StatusOK)
		if dead := g.list(url.Values{"state": {"dead"}}); len(dead) != 5 {
			t.Errorf("%d dead letters, want 5: %+v", len(dead), dead)
		}
	})
	p.checkAcceptedOnce()
}

// pushPlain delivers under a message id and checks the response status.
func (g *gateway) pushPlain(source, messageID, body string, want int) {
	g.t.Helper()
	a, err := g.call(http.MethodPost, "/v1/push/"+source, queueToken, http.Header{"Message-Id": {messageID}}, []byte(body))
	if err != nil || a.status != want {
		g.t.Errorf("%s at %s: %s, %v", messageID, source, a, err)
	}
}

// Bug: parts that are joined by an unescaped delimiter make two keys one.
func TestB04_DelimiterInAPartMergesNoIdentities(t *testing.T) {
	type identity = ledger.Identity
	pairs := map[string][2]identity{
		// The grammar of types and channels allows these three.
		"id and type by .":      {{ReminderID: "a.b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b.c", Channel: "email"}},
		"id and type by _":      {{ReminderID: "a_b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b_c", Channel: "email"}},
		"id and type by -":      {{ReminderID: "a-b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b-c", Channel: "email"}},
		"id and type by none":   {{ReminderID: "ab", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "bc", Channel: "email"}},
		"type and channel by .": {{ReminderID: "r", Type: "t.x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x.email"}},
		"type and channel by _": {{ReminderID: "r", Type: "t_x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x_email"}},
		"type and channel by -": {{ReminderID: "r", Type: "t-x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x-email"}},
		// These are allowed in ids alone; a type that contains one is a dead letter of its own.
		"a colon":     {{ReminderID: "d:b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b:c", Channel: "email"}},
		"a bar":       {{ReminderID: "d|b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b|c", Channel: "email"}},
		"a slash":     {{ReminderID: "d/b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b/c", Channel: "email"}},
		"an escape":   {{ReminderID: "d%3Ab", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b%3Ac", Channel: "email"}},
		"upper case":  {{ReminderID: "D", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "C", Channel: "email"}},
		"its escape":  {{ReminderID: "e%2Fb", Type: "c", Channel: "email"}, {ReminderID: "e/b", Type: "c", Channel: "email"}},
		"a wide char": {{ReminderID: "e", Type: "c", Channel: "email"}, {ReminderID: "é", Type: "c", Channel: "email"}},
	}
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		c := configure(database, p)
		for _, channel := range []string{"x.email", "x_email", "x-email"} {
			c = c.with(map[string]any{"provider": "mail"}, "channels", channel)
		}
		g := serve(t, c)
		sent := map[string]bool{}
		dead := 0
		for name, pair := range pairs {
			for _, id := range pair {
				a := g.deliver(newReminder(id.ReminderID).with("type", id.Type).with("channel", id.Channel))
				v := a.plainReply(t)
				switch {
				case v.State == "sent" && isAck(a) && !v.Duplicate:
					sent[id.SendKey()] = true
					if got := g.entryDetail(id.ReminderID, id.Type, id.Channel).Entry; got.State != "sent" || got.ReminderID != id.ReminderID {
						t.Errorf("%s: detail of %+v: %+v", name, id, got)
					}
				case v.State == "dead" && isAck(a):
					dead++
				default:
					t.Errorf("%s: %+v: %s", name, id, a)
				}
			}
		}
		counts := p.counts()
		if counts.Calls != len(sent) || len(counts.Keys) != len(sent) || len(sent)+dead != 2*len(pairs) || dead != 6 {
			t.Errorf("%d sent, %d dead, %d calls under %d keys of %d identities", len(sent), dead, counts.Calls, len(counts.Keys), 2*len(pairs))
		}
		for key := range sent {
			if counts.Keys[key].Accepts != 1 {
				t.Errorf("key %s: %+v", key, counts.Keys[key])
			}
		}
		// A path finds the entries it names, however it is escaped, and no others.
		for _, id := range []string{"d/b", "d%3Ab", "e%2Fb", "e/b", "a.b"} {
			a := g.get("/v1/reminders/" + url.PathEscape(id))
			if a.status != http.StatusOK || bytes.Count(a.body, []byte(`"reminder_id"`)) != 1 {
				t.Errorf("entries of %s: %s", id, a)
			}
		}
	})
}

// Bug: a key that is reused with other content is executed again, or silently ignored.
func TestB05_OtherContentUnderAKnownIdentityIsReportedAndNeverSent(t *testing.T) {
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, configure(database, p))
		d := newReminder("rem-b05")
		other := d.with("to", "q9@example.test")
		if a := g.deliver(d); !isAck(a) || a.plainReply(t).Conflict {
			t.Fatalf("the first content: %s", a)
		}
		conflicts := func(rows, total int) {
			t.Helper()
			s := g.detail(d)
			if s.Entry.State != "sent" || s.Entry.Conflicts != rows || len(s.Conflicts) != rows {
				t.Errorf("state %s, %d conflicts, %v; want %d", s.Entry.State, s.Entry.Conflicts, s.Conflicts, rows)
			}
			g.checkMetric("sendonce_conflicts_total", total)
		}

		spaced := `{ "content" : {"text": "It is held until 09:10.", "subject":"Seat"} , "to":"rem-b05@example.test",
			"channel":"email", "type" : "seat_expiring","reminder_id":"rem-b05", "metadata": {"seen": "twice"}}`
		if a := g.push(spaced); !isAck(a) || a.plainReply(t).Conflict {
			t.Errorf("the same content in another order: %s", a)
		}
		conflicts(0, 0)

		if a := g.deliver(other); !isAck(a) || !a.plainReply(t).Conflict {
			t.Errorf("another recipient: %s", a)
		}
		conflicts(1, 1)
		if a := g.deliver(other); !isAck(a) || !a.plainReply(t).Conflict {
			t.Errorf("the other recipient again: %s", a)
		}
		conflicts(1, 2)
		a := g.post("/v1/reminders", d.with("content", map[string]any{"text": "Other"}).String())
		if a.status != http.StatusConflict || !bytes.Contains(a.body, []byte(`"code":"conflict"`)) {
			t.Errorf("other content over REST: %s", a)
		}
		conflicts(2, 3)
		if a := g.post("/v1/reminders", d.String()); a.status != http.StatusOK {
			t.Errorf("the same content over REST: %s", a)
		}
		p.checkCalls(d, 1, 1)
	})
}

// The delivery with the other content may be the one that claims the retry.
func TestB05_RetryTriggeredByOtherContentSendsTheFirstContent(t *testing.T) {
	p := startProvider(t)
	p.setModes("busy:1", providertest.OK)
	g := serve(t, configure(newSQLite(t), p))
	d := newReminder("rem-b05")
	g.pushExpectNack(d)
	a := g.pushUntilAcked(d.with("to", "q9@example.test"), 10*time.Second)
	if v := a.plainReply(t); v.State != "sent" || !v.Conflict {
		t.Errorf("the other content: %s", a)
	}
	p.checkCalls(d, 2, 1)
}

// Bug: an incompressible id of 2,700 bytes and more fails the unique index at every retry (SQLSTATE 54000).
func TestB08_IDLengthIsCheckedAtIngestNotByAnIndex(t *testing.T) {
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, configure(database, p))
		fills := map[string]func(n int) string{
			"compressible":   func(n int) string { return strings.Repeat("a", n) },
			"incompressible": randomText,
		}
		dead := 0
		for name, fill := range fills {
			for _, n := range []int{1, 255} {
				// Every indexed column is as long as it may be.
				d := newReminder(fill(n)).with("to", "p7@example.test").with("type", "t"+strings.ToLower(fill(min(n, 63)))).
					with("reservation_id", fill(n)).with("user_id", fill(n)).with("correlation_id", fill(n))
				if a := g.deliver(d); !isAck(a) || a.plainReply(t).State != "sent" {
					t.Errorf("%s id of %d: %s", name, n, a)
				}
			}
			for _, n := range []int{0, 256, 3_000, 200_000} {
				d := newReminder(fill(n)).with("to", "p7@example.test").with("user_id", name) // otherwise the two empty ids would be one message
				for range 2 {
					if a := g.deliver(d); !isAck(a) || a.plainReply(t).Reason != "malformed" {
						t.Errorf("%s id of %d: %s", name, n, a)
					}
				}
				dead++
				if a := g.post("/v1/reminders", d.String()); a.status != http.StatusBadRequest {
					t.Errorf("%s id of %d over REST: %s", name, n, a)
				}
			}
			// Over the limit of 256 KiB and authentic: a dead letter. Beyond the maximum size of a request:
			// not read.
			if a := g.deliver(newReminder("rem-b08").with("to", fill(300_000))); !isAck(a) || a.plainReply(t).Reason != "malformed" {
				t.Errorf("%s message over the limit: %s", name, a)
			}
			dead++
			if a := g.deliver(newReminder("rem-b08").with("to", fill(500_000))); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s request over the maximum size: %s", name, a)
			}
		}
		if c := p.counts(); c.Calls != 4 || c.Accepts != 4 {
			t.Errorf("%d calls, %d accepted; want 4", c.Calls, c.Accepts)
		}
		if got := g.list(url.Values{"state": {"dead"}}); len(got) != dead {
			t.Errorf("%d dead letters, want %d", len(got), dead)
		}
		if all := g.list(url.Values{}); len(all) != dead+4 {
			t.Errorf("%d entries, want %d", len(all), dead+4)
		}
		g.checkNotLogged("54000", `"level":"ERROR","msg":"delivery"`)
	})
}
