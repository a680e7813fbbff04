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

// An idempotency key that only works once the first request has stored its result lets concurrent twins
// both run.
func TestB01TwinsThatArriveBeforeTheFirstHasFinishedAreNackedAndCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		onFlavours(t, func(t *testing.T, f flavour) {
			p := startProvider(t)
			p.told(providertest.Control{Idempotent: f.honours, LatencyMin: time.Second})
			g := serve(t, f.configure(database, p))
			id := "rem-b01-" + strings.ReplaceAll(f.name, " ", "-")
			d := remind(id)

			var acks atomic.Int32
			parallel(twins, func(int) {
				a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
				switch {
				case err != nil:
					t.Error(err)
				case isAck(a):
					acks.Add(1)
					if a.verdict(t).State != "sent" {
						t.Errorf("acked before it was sent: %s", a)
					}
				case !isNack(a):
					t.Errorf("%s, Retry-After %q", a, a.header.Get("Retry-After"))
				}
			})
			if acks.Load() < 1 {
				t.Error("nobody was told that it is sent")
			}
			if a := g.bring(d); !isAck(a) || !a.verdict(t).Duplicate || a.took >= time.Second {
				t.Errorf("after it was sent: %s in %v", a, a.took)
			}
			p.saw(d, 1, 1)
			if e := g.of(d).Entry; e.Attempts != 1 || e.Version != 2 {
				t.Errorf("%d attempts, version %d: somebody else wrote", e.Attempts, e.Version)
			}
			g.counted("sendonce_duplicates_total", twins)
		})
	})
}

// A producer that publishes one event twice gets two message ids; two producers may both use "100".
func TestB02MessageIDsAreEvidenceAndNeverIdentity(t *testing.T) {
	p := startProvider(t)
	issuer := startIssuer(t)
	c := issuer.source(configure(embedded(t), p), "stream")
	g := serve(t, c.with(c["sources"].(map[string]any)["queue"], "sources", "courses"))

	t.Run("one reminder under three message ids by two sources is one send", func(t *testing.T) {
		reminder := remind("rem-b02").String()
		issuer.push(g, "stream", pubsubEnvelope(reminder, "70010001"), http.StatusNoContent)
		issuer.push(g, "stream", pubsubEnvelope(reminder, "70010999"), http.StatusNoContent)
		g.plain("queue", "100", reminder, http.StatusOK)
		p.saw(remind("rem-b02"), 1, 1)
		g.counted("sendonce_duplicates_total", 2)
		if all := g.list(url.Values{"reminder_id": {"rem-b02"}}); len(all) != 1 || all[0].State != "sent" {
			t.Errorf("entries: %+v", all)
		}
	})
	t.Run("one message id at two sources, and again at one, hides no reminder", func(t *testing.T) {
		g.plain("queue", "100", remind("rem-b02x").String(), http.StatusOK)
		g.plain("courses", "100", remind("rem-b02y").String(), http.StatusOK)
		g.plain("queue", "100", remind("rem-b02z").String(), http.StatusOK)
		for _, id := range []string{"rem-b02x", "rem-b02y", "rem-b02z"} {
			p.saw(remind(id), 1, 1)
		}
	})
	t.Run("what nobody can read is one dead letter for each source, message id and bytes", func(t *testing.T) {
		for _, source := range []string{"queue", "courses", "queue"} {
			for _, id := range []string{"100", "101"} {
				g.plain(source, id, "no json", http.StatusOK)
			}
		}
		g.plain("queue", "100", "no json either", http.StatusOK)
		if dead := g.list(url.Values{"state": {"dead"}}); len(dead) != 5 {
			t.Errorf("%d dead letters, want 5: %+v", len(dead), dead)
		}
	})
	p.acceptsOnce()
}

// plain delivers under a message id.
func (g *gateway) plain(source, messageID, body string, want int) {
	g.t.Helper()
	a, err := g.call(http.MethodPost, "/v1/push/"+source, queueToken, http.Header{"Message-Id": {messageID}}, []byte(body))
	if err != nil || a.status != want {
		g.t.Errorf("%s at %s: %s, %v", messageID, source, a, err)
	}
}

// Parts that are joined by an unescaped delimiter make two keys one.
func TestB04ADelimiterInAPartMergesNoIdentities(t *testing.T) {
	type identity = ledger.Identity
	pairs := map[string][2]identity{
		// The grammar of types and channels has these three.
		"id and type by .":      {{ReminderID: "a.b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b.c", Channel: "email"}},
		"id and type by _":      {{ReminderID: "a_b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b_c", Channel: "email"}},
		"id and type by -":      {{ReminderID: "a-b", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "b-c", Channel: "email"}},
		"id and type by none":   {{ReminderID: "ab", Type: "c", Channel: "email"}, {ReminderID: "a", Type: "bc", Channel: "email"}},
		"type and channel by .": {{ReminderID: "r", Type: "t.x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x.email"}},
		"type and channel by _": {{ReminderID: "r", Type: "t_x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x_email"}},
		"type and channel by -": {{ReminderID: "r", Type: "t-x", Channel: "email"}, {ReminderID: "r", Type: "t", Channel: "x-email"}},
		// These stand in ids alone; a type that has one is a dead letter of its own.
		"a colon":     {{ReminderID: "d:b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b:c", Channel: "email"}},
		"a bar":       {{ReminderID: "d|b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b|c", Channel: "email"}},
		"a slash":     {{ReminderID: "d/b", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b/c", Channel: "email"}},
		"an escape":   {{ReminderID: "d%3Ab", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "b%3Ac", Channel: "email"}},
		"upper case":  {{ReminderID: "D", Type: "c", Channel: "email"}, {ReminderID: "d", Type: "C", Channel: "email"}},
		"its escape":  {{ReminderID: "e%2Fb", Type: "c", Channel: "email"}, {ReminderID: "e/b", Type: "c", Channel: "email"}},
		"a wide char": {{ReminderID: "e", Type: "c", Channel: "email"}, {ReminderID: "é", Type: "c", Channel: "email"}},
	}
	onBoth(t, func(t *testing.T, database string) {
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
				a := g.bring(remind(id.ReminderID).but("type", id.Type).but("channel", id.Channel))
				v := a.verdict(t)
				switch {
				case v.State == "sent" && isAck(a) && !v.Duplicate:
					sent[id.SendKey()] = true
					if got := g.story(id.ReminderID, id.Type, id.Channel).Entry; got.State != "sent" || got.ReminderID != id.ReminderID {
						t.Errorf("%s: story of %+v: %+v", name, id, got)
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
		// A path finds what it names, however it is escaped, and nothing else.
		for _, id := range []string{"d/b", "d%3Ab", "e%2Fb", "e/b", "a.b"} {
			a := g.get("/v1/reminders/" + url.PathEscape(id))
			if a.status != http.StatusOK || bytes.Count(a.body, []byte(`"reminder_id"`)) != 1 {
				t.Errorf("entries of %s: %s", id, a)
			}
		}
	})
}

// A key that comes back with other content is executed again, or swallowed in silence.
func TestB05OtherContentUnderAKnownIdentityIsVisibleAndNeverSent(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, configure(database, p))
		d := remind("rem-b05")
		other := d.but("to", "q9@example.test")
		if a := g.bring(d); !isAck(a) || a.verdict(t).Conflict {
			t.Fatalf("the first content: %s", a)
		}
		conflicts := func(rows, met int) {
			t.Helper()
			s := g.of(d)
			if s.Entry.State != "sent" || s.Entry.Conflicts != rows || len(s.Conflicts) != rows {
				t.Errorf("story: %s, %d conflicts, %v; want %d", s.Entry.State, s.Entry.Conflicts, s.Conflicts, rows)
			}
			g.counted("sendonce_conflicts_total", met)
		}

		spaced := `{ "content" : {"text": "It is held until 09:10.", "subject":"Seat"} , "to":"rem-b05@example.test",
			"channel":"email", "type" : "seat_expiring","reminder_id":"rem-b05", "metadata": {"seen": "twice"}}`
		if a := g.push(spaced); !isAck(a) || a.verdict(t).Conflict {
			t.Errorf("the same content in another order: %s", a)
		}
		conflicts(0, 0)

		if a := g.bring(other); !isAck(a) || !a.verdict(t).Conflict {
			t.Errorf("another recipient: %s", a)
		}
		conflicts(1, 1)
		if a := g.bring(other); !isAck(a) || !a.verdict(t).Conflict {
			t.Errorf("the other recipient again: %s", a)
		}
		conflicts(1, 2)
		a := g.post("/v1/reminders", d.but("content", map[string]any{"text": "Other"}).String())
		if a.status != http.StatusConflict || !bytes.Contains(a.body, []byte(`"code":"conflict"`)) {
			t.Errorf("other content over REST: %s", a)
		}
		conflicts(2, 3)
		if a := g.post("/v1/reminders", d.String()); a.status != http.StatusOK {
			t.Errorf("the same content over REST: %s", a)
		}
		p.saw(d, 1, 1)
	})
}

// The delivery that brings other content may be the one that claims the retry.
func TestB05TheRetryThatADeliveryOfOtherContentBringsAboutSendsTheFirstContent(t *testing.T) {
	p := startProvider(t)
	p.plays("busy:1", providertest.OK)
	g := serve(t, configure(embedded(t), p))
	d := remind("rem-b05")
	g.nacked(d)
	a := g.acked(d.but("to", "q9@example.test"), 10*time.Second)
	if v := a.verdict(t); v.State != "sent" || !v.Conflict {
		t.Errorf("the other content: %s", a)
	}
	p.saw(d, 2, 1)
}

// An incompressible id of 2,700 bytes and more fails the unique index at every retry (SQLSTATE 54000).
func TestB08TheLengthOfAnIDIsJudgedAtTheDoorAndNeverByAnIndex(t *testing.T) {
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, configure(database, p))
		fills := map[string]func(n int) string{
			"compressible":   func(n int) string { return strings.Repeat("a", n) },
			"incompressible": randomText,
		}
		dead := 0
		for name, fill := range fills {
			for _, n := range []int{1, 255} {
				// Every column that an index holds is as long as it may be.
				d := remind(fill(n)).but("to", "p7@example.test").but("type", "t"+strings.ToLower(fill(min(n, 63)))).
					but("reservation_id", fill(n)).but("user_id", fill(n)).but("correlation_id", fill(n))
				if a := g.bring(d); !isAck(a) || a.verdict(t).State != "sent" {
					t.Errorf("%s id of %d: %s", name, n, a)
				}
			}
			for _, n := range []int{0, 256, 3_000, 200_000} {
				d := remind(fill(n)).but("to", "p7@example.test").but("user_id", name) // or the two empty ids are one message
				for range 2 {
					if a := g.bring(d); !isAck(a) || a.verdict(t).Reason != "malformed" {
						t.Errorf("%s id of %d: %s", name, n, a)
					}
				}
				dead++
				if a := g.post("/v1/reminders", d.String()); a.status != http.StatusBadRequest {
					t.Errorf("%s id of %d over REST: %s", name, n, a)
				}
			}
			// Over the limit of 256 KiB and authentic: a dead letter. Beyond what a request may be: not read.
			if a := g.bring(remind("rem-b08").but("to", fill(300_000))); !isAck(a) || a.verdict(t).Reason != "malformed" {
				t.Errorf("%s message over the limit: %s", name, a)
			}
			dead++
			if a := g.bring(remind("rem-b08").but("to", fill(500_000))); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%s request beyond the cap: %s", name, a)
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
		g.neverLogs("54000", `"level":"ERROR","msg":"delivery"`)
	})
}
