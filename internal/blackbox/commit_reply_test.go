package blackbox

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// commitCuts is the number of commits whose reply is lost: go test ./internal/blackbox -run
// TestCommit_LostReply -commit.cuts 1000 -v
var commitCuts = flag.Int("commit.cuts", 100, "how many commits lose their reply")

// TestCommit_LostReplyIsRecognisedAsOwnWrite ends the connection after each n-th write has been committed,
// and at random before or after. A gateway can distinguish these from another gateway's row only by reading
// it, and whatever it takes for another's it would send again, or count as sent by another.
func TestCommit_LostReplyIsRecognisedAsOwnWrite(t *testing.T) {
	t.Parallel()
	each := func(n int, of ...write) func(write) fault {
		seen := 0
		return func(w write) fault {
			if len(of) > 0 && !slices.Contains(of, w) {
				return noFault
			}
			if seen++; seen%n == 0 {
				return replyLost
			}
			return noFault
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, seed))
	plans := []func(write) fault{
		each(1), each(2), each(3), each(5), each(1, create), each(1, claim), each(1, settle),
		func(write) fault {
			switch roll := chance.IntN(10); {
			case roll < 4:
				return replyLost
			case roll < 6:
				return requestLost
			}
			return noFault
		},
	}
	c := newCutter(t, newPostgres(t), nil)
	s := newStream(t, c.url, false)
	for i, plan := range plans {
		c.setPlan(plan)
		s.deliverWave()
		for int(c.cuts.Load()) < *commitCuts*(i+1)/len(plans) {
			s.deliverWave()
		}
	}
	c.setPlan(func(write) fault { return noFault })
	s.checkAll()
	t.Logf("%d cuts, %d reminders", c.cuts.Load(), len(s.all))
}

// stream delivers reminders to one gateway, and knows the expected result of each.
type stream struct {
	t              *testing.T
	g              *gateway
	blind, honours *provider
	all            []delivery
}

// delivery is one reminder and its expected outcomes.
type delivery struct {
	document document
	provider *provider
	path     string
	token    string
	outcomes []string
}

func newStream(t *testing.T, database string, pooled bool) *stream {
	t.Helper()
	s := &stream{t: t, blind: startProvider(t), honours: startProvider(t)}
	s.g = serve(t, configure(database, s.blind).with(pooled, "database", "pooler").with("30s", "lease").with("25s", "sources", "queue", "answer_within").
		with("10m", "sources", "queue", "takeover_after").
		with("5s", "providers", "mail", "timeout").with(map[string]any{"blind": true}, "providers", "mail", "contract").
		withProvider("honours", s.honours.url(), "5s", map[string]any{"idempotent": "24h"}))
	return s
}

// deliverWave delivers some reminders of each kind concurrently, and waits until all of them are acked.
func (s *stream) deliverWave() {
	s.t.Helper()
	const push, rest = "/v1/push/queue", "/v1/reminders"
	var deliveries []delivery
	modes := map[string][]string{}
	for range 4 {
		id := fmt.Sprintf("rem-%d", len(s.all)+len(deliveries))
		again := newReminder(id+"-again").with("channel", "honours")
		modes[again.recipient()] = []string{providertest.AcceptReset, providertest.OK}
		later := time.Now().Add(500 * time.Millisecond).UTC()
		deliveries = append(
			deliveries,
			delivery{newReminder(id + "-now"), s.blind, push, queueToken, []string{"accepted"}}, // created, settled
			delivery{newReminder(id + "-rest"), s.blind, rest, producerToken, []string{"accepted"}},
			delivery{newReminder(id+"-later").with("not_before", later), s.blind, push, queueToken, []string{"accepted"}}, // created, claimed, settled
			delivery{again, s.honours, push, queueToken, []string{"unknown", "accepted"}},                                 // and settled twice
		)
	}
	s.honours.setControl(providertest.Control{Idempotent: true, Modes: modes})
	parallel(len(deliveries), func(i int) {
		b := deliveries[i]
		a, err := s.g.call(http.MethodPost, b.path, b.token, http.Header{"Content-Type": {"application/json"}}, []byte(b.document.String()))
		switch {
		case err != nil:
			s.t.Errorf("%s: %v", b.document["reminder_id"], err)
		case a.status == http.StatusServiceUnavailable:
		case a.plainReply(s.t).Duplicate && b.document["not_before"] != nil: // a scheduled entry is created without a claim, so it has no holder token
		case a.status != http.StatusOK && a.status != http.StatusAccepted, a.plainReply(s.t).Duplicate, a.plainReply(s.t).Conflict:
			s.t.Errorf("%s, first delivery: %s", b.document["reminder_id"], a)
		}
	})
	for _, b := range deliveries {
		s.g.pushUntilAcked(b.document, 30*time.Second)
	}
	s.all = append(s.all, deliveries...)
}

// checkAll checks every timeline: one accept, and each version of an entry is a claim or a timeline event.
func (s *stream) checkAll() {
	s.t.Helper()
	for _, b := range s.all {
		detail := s.g.waitForState(b.document, "sent", 30*time.Second)
		detail.checkOutcomes(s.t, b.outcomes...)
		e, claims := detail.Entry, 0
		for _, l := range detail.Timeline {
			switch {
			case l.Kind == "attempt", l.Reason == "not_called":
				claims++
			case l.Kind != "decision":
				s.t.Errorf("%s: a %s, as if by another gateway: %+v", e.ReminderID, l.Kind, l)
			}
		}
		if e.Version != int64(claims+len(detail.Timeline)) || e.Attempts != len(b.outcomes) || e.LeaseExpirations != 0 || e.Receipt == "" {
			s.t.Errorf("version %d after %d claims: %+v", e.Version, claims, detail)
		}
		if got := b.provider.countsFor(b.document); got.Calls != len(b.outcomes) || got.Accepts != 1 || got.Bodies != 1 {
			s.t.Errorf("%s: the provider saw %+v", e.ReminderID, got)
		}
	}
	for _, kind := range []string{"late_acceptance", "late_failure", "replayed", "possible_second_send"} {
		if got := s.g.metric(`sendonce_late_total{kind="` + kind + `"}`); got != "0" {
			s.t.Errorf("the metric is %s for %s: the gateway took its own write for another's", got, kind)
		}
	}
}
