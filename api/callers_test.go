package api

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// working returns fakes that succeed.
func working() *fakeServices {
	return &fakeServices{
		request: func(context.Context, string, reminder.Reminder, ledger.Trace) (ledger.Reply, error) {
			return ledger.Reply{Ack: true, Entry: entry(nil)}, nil
		},
		cancel: func(context.Context, string, string, string, string) ([]ledger.Cancelled, error) {
			return []ledger.Cancelled{{Entry: entry(nil), Result: ledger.CancelTooLate}}, nil
		},
		find: func(context.Context, string) ([]ledger.Entry, error) { return []ledger.Entry{entry(nil)}, nil },
		list: func(context.Context, ledger.Query) ([]ledger.Entry, error) { return nil, nil },
		detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
			return ledger.EntryDetail{Entry: deadLetter(nil)}, nil
		},
		unresolved: func(context.Context, ledger.DoubtPosition, int) ([]ledger.EntryDetail, error) { return nil, nil },
		startSweep: func(_ context.Context, audit ledger.AuditEvent) (ledger.SweepRun, error) {
			return ledger.SweepRun{Actor: audit.Actor, Started: testNow}, nil
		},
		resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
			return entry(nil), nil
		},
		adminFakes: workingAdmin(),
	}
}

func TestRoutes_AdmitExactlyTheirRoles(t *testing.T) {
	tokens := []string{"producer", "support", "operator", "admin", "norole"}
	producer, everybody := []string{"producer"}, []string{"producer", "support", "operator", "admin"}
	support, operator, admin := everybody[1:], everybody[2:], everybody[3:]
	allowed := map[string][]string{
		"POST /v1/push/{source}":                   nil, // for brokers and providers, not for callers
		"POST /v1/providers/{name}/events":         nil,
		"POST /v1/reminders":                       producer,
		"POST /v1/reminders/{reminder_id}/cancel":  producer,
		"GET /v1/reminders/{reminder_id}":          everybody,
		"GET /v1/admin/entries":                    support,
		"GET /v1/admin/entries/{id}":               support,
		"POST /v1/admin/entries/{id}/resolve":      operator,
		"GET /v1/admin/reconciliation":             support,
		"POST /v1/admin/reconciliation/runs":       operator,
		"GET /v1/admin/dead-letters":               support,
		"GET /v1/admin/dead-letters/groups":        support,
		"GET /v1/admin/dead-letters/{id}":          support,
		"POST /v1/admin/dead-letters/{id}/discard": operator,
		"POST /v1/admin/redrives":                  operator,
		"GET /v1/admin/redrives":                   support,
		"GET /v1/admin/redrives/{id}":              support,
		"POST /v1/admin/redrives/{id}/cancel":      operator,
		"GET /v1/admin/audit":                      operator,
		"GET /v1/admin/providers":                  support,
		"POST /v1/admin/providers/{name}/pause":    operator,
		"POST /v1/admin/providers/{name}/resume":   operator,
		"DELETE /v1/admin/users/{user_id}/data":    admin,
	}
	const reasonOnly = `{"reason": "r"}`
	bodies := map[string]string{
		"POST /v1/reminders":                       aReminder,
		"POST /v1/admin/entries/{id}/resolve":      aResolution,
		"POST /v1/admin/reconciliation/runs":       reasonOnly,
		"POST /v1/admin/dead-letters/{id}/discard": `{"reason": "r", "version": 3}`,
		"POST /v1/admin/redrives":                  aRedriveRequest,
		"POST /v1/admin/redrives/{id}/cancel":      reasonOnly,
		"POST /v1/admin/providers/{name}/pause":    reasonOnly,
		"POST /v1/admin/providers/{name}/resume":   reasonOnly,
		"DELETE /v1/admin/users/{user_id}/data":    reasonOnly,
	}
	h := newHarness(t, working())
	walked := 0
	err := chi.Walk(newServer(Options{}).all(), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		roles, listed := allowed[method+" "+route]
		if !listed {
			t.Errorf("%s %s has no roles listed", method, route)
		}
		walked++
		target := strings.NewReplacer("{reminder_id}", "rem-1842", "{id}", entry(nil).EntryID(), "{source}", "seats",
			"{name}", "mail", "{user_id}", "u-77").Replace(route)
		body, status := bodies[method+" "+route], 200
		if method == "POST" && (strings.HasSuffix(route, "/runs") || strings.HasSuffix(route, "/redrives")) {
			status = 202
		}
		for _, token := range tokens {
			switch {
			case roles == nil:
				h.expect(request(method, target, token, body), 401, "")
			case slices.Contains(roles, token):
				h.expect(request(method, target, token, body), status, "")
			default:
				h.expect(request(method, target, token, body), 403, wire.ProblemCodeForbidden)
			}
		}
		for i, token := range []string{"", "wrong"} {
			r := request(method, target, token, body)
			r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", walked*2+i) // so that no address is throttled
			if w := h.expect(r, 401, ""); w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate is %q", w.Header().Get("WWW-Authenticate"))
			}
		}
		return nil
	})
	if err != nil || walked != len(allowed) {
		t.Errorf("%d routes walked, %d listed: %v", walked, len(allowed), err)
	}
}

func TestRole_HigherIncludesLowerAndProducerIsSeparate(t *testing.T) {
	order := []Role{Support, Operator, Admin}
	for i, have := range order {
		for j, need := range order {
			if have.holds(need) != (i >= j) {
				t.Errorf("%s holds %s: %v", have, need, have.holds(need))
			}
		}
		if have.holds(Producer) || Producer.holds(have) {
			t.Errorf("%s and producer are not separate", have)
		}
	}
	for _, unknown := range []Role{"", "root", "ADMIN"} {
		for _, need := range []Role{Producer, Support, Operator, Admin, anyRole, unknown} {
			if unknown.holds(need) {
				t.Errorf("%q holds %q", unknown, need)
			}
		}
	}
}

func TestRequireRole_AcceptsOnlyOneCompleteBearerToken(t *testing.T) {
	h := newHarness(t, working())
	for _, headers := range [][]string{
		nil,
		{""},
		{"producer"},
		{"Bearer"},
		{"Bearer "},
		{"Basic producer"},
		{"Bearer producer "},
		{"Bearer Producer"},
		{"Bearer produce"},
		{"Bearer producerr"},
		{"Bearer producer", "Bearer producer"},
		{"Bearer producer, Bearer producer"},
		{"Bearer \x00producer"},
		{"Bearer " + strings.Repeat("a", 20<<10)},
	} {
		r := request("GET", "/v1/reminders/r?access_token=producer", "", "")
		r.Header["Authorization"] = headers
		if w := h.do(r); w.Code != 401 {
			t.Errorf("%.40q: %d", headers, w.Code)
		}
	}
	r := request("GET", "/v1/reminders/r", "", "")
	r.Header.Set("Authorization", "bearer producer")
	h.expect(r, 200, "")
}

func TestRequireRole_EmptyTokenMatchesNoCaller(t *testing.T) {
	h := newHarness(t, &fakeServices{}, func(o *Options) {
		o.Callers = []Caller{{Name: "x", Role: Admin}, {Name: "y", Role: Admin, TokenHashes: [][sha256.Size]byte{sha256.Sum256(nil)}}}
	})
	r := request("GET", "/v1/admin/entries", "", "")
	r.Header.Set("Authorization", "Bearer ")
	h.expect(r, 401, wire.ProblemCodeUnauthenticated)
}

func TestRequireRole_ThrottlesFailuresByAddressAndNeverValidTokens(t *testing.T) {
	now := testNow
	h := newHarness(t, working(), func(o *Options) { o.Now = func() time.Time { return now } })
	attempt := func(address, token string) int {
		r := request("GET", "/v1/reminders/r", token, "")
		r.RemoteAddr = address
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.0.0.%d", now.Second()))
		w := h.do(r)
		if w.Code == 429 && w.Header().Get("Retry-After") != "6" {
			t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
		}
		return w.Code
	}
	for i := range authFailureBurst {
		if code := attempt("192.0.2.1:1000", fmt.Sprintf("token-canary-%d", i)); code != 401 {
			t.Fatalf("failure %d is answered with %d", i, code)
		}
	}
	for range 1000 {
		if code := attempt("192.0.2.1:2000", "token-canary"); code != 429 {
			t.Fatalf("one too many is answered with %d", code)
		}
	}
	if code := attempt("192.0.2.1:3000", "producer"); code != 200 {
		t.Errorf("the right token is answered with %d", code)
	}
	now = now.Add(authFailureEvery)
	if first, second := attempt("192.0.2.1:1", "x"), attempt("192.0.2.1:1", "x"); first != 401 || second != 429 {
		t.Errorf("after a while: %d, %d", first, second)
	}
	if log := h.log.String(); strings.Contains(log, "canary") || strings.Count(log, "authentication failed") != authFailureBurst+1 {
		t.Errorf("the log has a token, or not one line a failure: %s", log)
	}
}

func TestAuthLimit_BoundsFailuresFromManyAddresses(t *testing.T) {
	f, refused := newAuthLimit(), 0
	for i := range 100_000 {
		if f.count(fmt.Sprintf("198.51.%d.%d:1", i/256%256, i%256), testNow) > 0 {
			refused++
		}
	}
	if most := len(f.spent) * authFailureBurst; refused < 100_000-most {
		t.Errorf("%d of 100000 were refused, and %d fit", refused, most)
	}
}

func TestNetwork_IsTheAddressRangeOfOnePeer(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"192.0.2.1:1", "[::ffff:192.0.2.1]:1", true},
		{"[2001:db8::1]:1", "[2001:db8::ffff:2]:9", true},
		{"[2001:db8:0:1::1]:1", "[2001:db8:0:2::1]:1", false},
		{"[fe80::1%eth0]:1", "[fe80::2%eth1]:1", true},
		{"@", "@", true},
	} {
		if same := network(c.a) == network(c.b); same != c.same {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, same)
		}
	}
}

func TestRequireRole_RefusesWrongTokenBeforeReadingBody(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	r := request("POST", "/v1/reminders", "wrong", aReminder)
	r.Body = unreadable{t}
	h.expect(r, 401, wire.ProblemCodeUnauthenticated)
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, http.ErrBodyReadAfterClose
}

func (unreadable) Close() error { return nil }
