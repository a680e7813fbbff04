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

// go test ./internal/blackbox -run TestACommitWhoseReplyIsLost -commit.cuts 1000 -v
var commitCuts = flag.Int("commit.cuts", 100, "how many commits lose their reply")

// TestACommitWhoseReplyIsLostIsKnownForOnesOwn : the connection ends after each n-th write has been
// committed, and at random before or after. A gateway can't tell these apart from a row of another's but by
// looking, and whatever it takes for another's it would send again, or count as sent by somebody else.
func TestACommitWhoseReplyIsLostIsKnownForOnesOwn(t *testing.T) {
	t.Parallel()
	each := func(n int, of ...write) func(write) fate {
		seen := 0
		return func(w write) fate {
			if len(of) > 0 && !slices.Contains(of, w) {
				return carried
			}
			if seen++; seen%n == 0 {
				return replyLost
			}
			return carried
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, seed))
	plans := []func(write) fate{
		each(1), each(2), each(3), each(5), each(1, create), each(1, claim), each(1, settle),
		func(write) fate {
			switch roll := chance.IntN(10); {
			case roll < 4:
				return replyLost
			case roll < 6:
				return requestLost
			}
			return carried
		},
	}
	c := cutting(t, shared(t), nil)
	s := startStream(t, c.url, false)
	for i, plan := range plans {
		c.plans(plan)
		s.wave()
		for int(c.cuts.Load()) < *commitCuts*(i+1)/len(plans) {
			s.wave()
		}
	}
	c.plans(func(write) fate { return carried })
	s.check()
	t.Logf("%d cuts, %d reminders", c.cuts.Load(), len(s.all))
}

// stream brings reminders to one gateway, and knows what must come of each.
type stream struct {
	t              *testing.T
	g              *gateway
	blind, honours *provider
	all            []sending
}

// sending is a reminder on its way.
type sending struct {
	document document
	provider *provider
	path     string
	token    string
	outcomes []string
}

func startStream(t *testing.T, database string, pooled bool) *stream {
	t.Helper()
	s := &stream{t: t, blind: startProvider(t), honours: startProvider(t)}
	s.g = serve(t, configure(database, s.blind).with(pooled, "database", "pooler").with("30s", "lease").with("25s", "sources", "queue", "answer_within").
		with("10m", "sources", "queue", "takeover_after").
		with("5s", "providers", "mail", "timeout").with(map[string]any{"blind": true}, "providers", "mail", "contract").
		lane("honours", s.honours.url(), "5s", map[string]any{"idempotent": "24h"}))
	return s
}

// wave brings some of each kind at once, and waits until all of them are acked.
func (s *stream) wave() {
	s.t.Helper()
	const push, ask = "/v1/push/queue", "/v1/reminders"
	var brought []sending
	modes := map[string][]string{}
	for range 4 {
		id := fmt.Sprintf("rem-%d", len(s.all)+len(brought))
		again := remind(id+"-again").but("channel", "honours")
		modes[again.to()] = []string{providertest.AcceptReset, providertest.OK}
		later := time.Now().Add(500 * time.Millisecond).UTC()
		brought = append(
			brought,
			sending{remind(id + "-now"), s.blind, push, queueToken, []string{"accepted"}}, // created, settled
			sending{remind(id + "-asked"), s.blind, ask, producer, []string{"accepted"}},
			sending{remind(id+"-later").but("not_before", later), s.blind, push, queueToken, []string{"accepted"}}, // created, claimed, settled
			sending{again, s.honours, push, queueToken, []string{"unknown", "accepted"}},                           // and settled twice
		)
	}
	s.honours.told(providertest.Control{Idempotent: true, Modes: modes})
	parallel(len(brought), func(i int) {
		b := brought[i]
		a, err := s.g.call(http.MethodPost, b.path, b.token, http.Header{"Content-Type": {"application/json"}}, []byte(b.document.String()))
		switch {
		case err != nil:
			s.t.Errorf("%s: %v", b.document["reminder_id"], err)
		case a.status == http.StatusServiceUnavailable:
		case a.verdict(s.t).Duplicate && b.document["not_before"] != nil: // born at rest it bears nobody's token
		case a.status != http.StatusOK && a.status != http.StatusAccepted, a.verdict(s.t).Duplicate, a.verdict(s.t).Conflict:
			s.t.Errorf("%s, brought for the first time: %s", b.document["reminder_id"], a)
		}
	})
	for _, b := range brought {
		s.g.acked(b.document, 30*time.Second)
	}
	s.all = append(s.all, brought...)
}

// check looks at every timeline: one accept, and each version of an entry is a claim or a line.
func (s *stream) check() {
	s.t.Helper()
	for _, b := range s.all {
		told := s.g.comesTo(b.document, "sent", 30*time.Second)
		told.tells(s.t, b.outcomes...)
		e, claims := told.Entry, 0
		for _, l := range told.Timeline {
			switch {
			case l.Kind == "attempt", l.Reason == "not_called":
				claims++
			case l.Kind != "decision":
				s.t.Errorf("%s: a %s, as if by somebody else: %+v", e.ReminderID, l.Kind, l)
			}
		}
		if e.Version != int64(claims+len(told.Timeline)) || e.Attempts != len(b.outcomes) || e.Lapses != 0 || e.Receipt == "" {
			s.t.Errorf("version %d after %d claims: %+v", e.Version, claims, told)
		}
		if got := b.provider.tally(b.document); got.Calls != len(b.outcomes) || got.Accepts != 1 || got.Bodies != 1 {
			s.t.Errorf("%s: the provider saw %+v", e.ReminderID, got)
		}
	}
	for _, kind := range []string{"late_acceptance", "late_failure", "replayed", "possible_second_send"} {
		if got := s.g.metric(`sendonce_late_total{kind="` + kind + `"}`); got != "0" {
			s.t.Errorf("%s %s are counted: the gateway took its own row for another's", got, kind)
		}
	}
}
