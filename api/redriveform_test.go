package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// newRedriveHarness returns a harness that allows 150 items and stores the last redrive request.
func newRedriveHarness(t *testing.T) (*harness, *ledger.RedriveRequest) {
	t.Helper()
	got := &ledger.RedriveRequest{}
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{redrive: func(_ context.Context, request ledger.RedriveRequest) (ledger.Redrive, bool, error) {
		*got = request
		return aRedrive(nil), false, nil
	}}}, func(o *Options) { o.MaxItems = 150 })
	return h, got
}

func ids(n int) string {
	var all []string
	for i := range n {
		all = append(all, ledger.Identity{ReminderID: fmt.Sprint("r-", i), Type: "t", Channel: "email"}.EntryID())
	}
	text, _ := json.Marshal(all) // texts always marshal
	return string(text)
}

func TestReadRedrive_ReadsEveryMember(t *testing.T) {
	h, got := newRedriveHarness(t)
	later := testNow.Add(time.Hour)
	for body, want := range map[string]ledger.RedriveRequest{
		`{"filter": {"class": "recipient", "type": "t", "channel": "email", "provider": "mail", "code": "5.1.1",
			"from": "2031-03-04T10:00:00+01:00", "to": "2031-03-04T09:00:01Z"}, "limit": 150, "rate": 0.1, "deadline": "2031-03-04T11:00:00+01:00", "permanent": true, "reason": "x"}`: {
			Filter: ledger.Query{
				Class: ledger.ClassRecipient, Type: "t", Channel: "email", Provider: "mail", Code: "5.1.1",
				From: testNow, To: testNow.Add(time.Second),
			},
			Limit: 150, Rate: 0.1, Deadline: later, Permanent: true,
		},
		`{"filter": {"code": "x"}, "reason": "x"}`: {Filter: ledger.Query{Code: "x"}, Limit: 100, Rate: 10},
		`{"filter": {"class": "permanent"}, "rate": 1e2, "permanent": false, "dry_run": false, "reason": "x"}`: {
			Filter: ledger.Query{Class: ledger.ClassPermanent}, Limit: 100, Rate: 100, Permanent: true,
		},
		`{"ids": ` + ids(2) + `, "reason": "x"}`: {
			IDs:  []ledger.Identity{{ReminderID: "r-0", Type: "t", Channel: "email"}, {ReminderID: "r-1", Type: "t", Channel: "email"}},
			Rate: 10,
		},
		`{"ids": ` + ids(1) + `, "limit": 1, "reason": "x"}`: {
			IDs: []ledger.Identity{{ReminderID: "r-0", Type: "t", Channel: "email"}}, Limit: 1, Rate: 10,
		},
	} {
		h.expect(request("POST", "/v1/admin/redrives", "operator", body), 202, "")
		want.Audit, want.RequestHash, want.Request = ledger.AuditEvent{Actor: "oncall", Role: "operator", Reason: "x"}, got.RequestHash, got.Request
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if !json.Valid([]byte(got.Request)) {
			t.Errorf("kept as %s", got.Request)
		}
	}
	h.expect(request("POST", "/v1/admin/redrives", "operator", `{"ids": `+ids(150)+`, "reason": "x"}`), 202, "")
	if len(got.IDs) != 150 {
		t.Errorf("%d ids", len(got.IDs))
	}
}

func TestReadRedrive_HashIdentifiesTheRequest(t *testing.T) {
	h, got := newRedriveHarness(t)
	hashOf := func(body string) string {
		h.expect(request("POST", "/v1/admin/redrives", "operator", body), 202, "")
		return got.RequestHash
	}
	same := hashOf(`{"filter": {"class": "exhausted", "provider": "mail"}, "deadline": "2031-03-04T10:00:00Z", "reason": "a"}`)
	for _, body := range []string{
		`{"reason": "a", "deadline": "2031-03-04T11:00:00+01:00", "filter": {"provider": "mail", "class": "exhausted"}}`,
		`{"filter": {"class": "exhausted", "provider": "\u006dail"}, "limit": 100, "rate": 1.0e1, "permanent": false, "deadline": "2031-03-04T10:00:00.000Z", "reason": "a", "dry_run": false}`,
	} {
		if hashOf(body) != same {
			t.Errorf("another hash: %s", body)
		}
	}
	hashes := map[string]string{same: "the first request"}
	for _, body := range []string{
		`{"filter": {"class": "exhausted", "provider": "mail"}, "reason": "a"}`,
		`{"filter": {"class": "exhausted", "provider": "mail"}, "deadline": "2031-03-04T10:00:00Z", "reason": "b"}`,
		`{"filter": {"class": "exhausted", "type": "mail"}, "deadline": "2031-03-04T10:00:00Z", "reason": "a"}`,
		`{"filter": {"class": "exhausted", "provider": "mail"}, "deadline": "2031-03-04T10:00:00Z", "limit": 99, "reason": "a"}`,
		`{"filter": {"class": "exhausted", "provider": "mail"}, "deadline": "2031-03-04T10:00:00Z", "rate": 9, "reason": "a"}`,
		`{"filter": {"class": "exhausted", "provider": "mail"}, "deadline": "2031-03-04T10:00:00Z", "permanent": true, "reason": "a"}`,
		`{"ids": ` + ids(1) + `, "reason": "a"}`,
		`{"ids": ` + ids(2) + `, "reason": "a"}`,
	} {
		hash := hashOf(body)
		if other, taken := hashes[hash]; taken {
			t.Errorf("%s has the hash of %s", body, other)
		}
		hashes[hash] = body
	}
}

func TestReadRedrive_InvalidBodyRedrivesNothing(t *testing.T) {
	h := newHarness(t, &fakeServices{}, func(o *Options) { o.MaxItems = 150 })
	const some, rest = `"filter": {"code": "x"}, `, `"reason": "x"}`
	twice := `["` + deadLetter(nil).EntryID() + `", "` + deadLetter(nil).EntryID() + `"]`
	for _, c := range []struct {
		body   string
		fields []string
	}{
		{`{}`, []string{"filter", "reason"}},
		{`{` + rest, []string{"filter"}},
		{`{"filter": {}, ` + rest, []string{"filter"}},
		{`{"filter": null, ` + rest, []string{"filter"}},
		{`{"filter": [], ` + rest, []string{"filter"}},
		{`{"filter": "class", ` + rest, []string{"filter"}},
		{`{` + some + `"ids": ` + ids(1) + `, ` + rest, []string{"filter"}},
		{`{"filter": {"class": "credentials"}, ` + rest, []string{"filter.class"}},
		{`{"filter": {"state": "dead", "Class": "exhausted", "canari": "canary"}, ` + rest, []string{"filter.Class", "filter.canari", "filter.state"}},
		{`{"filter": {"class": "a", "class": "b"}, ` + rest, []string{""}},
		{
			`{"filter": {"type": "", "channel": 1, "provider": null, "code": "\u00e4", "reservation_id": ["canary"], "user_id": "` + strings.Repeat("a", 256) + `"}, ` + rest,
			[]string{"filter.channel", "filter.code", "filter.provider", "filter.reservation_id", "filter.type", "filter.user_id"},
		},
		{`{"filter": {"from": "yesterday", "to": 1}, ` + rest, []string{"filter.from", "filter.to"}},
		{`{"filter": {"from": "2031-03-04T09:00:00Z", "to": "2031-03-04T09:00:00Z"}, ` + rest, []string{"filter.to"}},
		{`{"ids": [], ` + rest, []string{"ids"}},
		{`{"ids": null, ` + rest, []string{"ids"}},
		{`{"ids": {"canary": 1}, ` + rest, []string{"ids"}},
		{`{"ids": ["canary"], ` + rest, []string{"ids"}},
		{`{"ids": [1], ` + rest, []string{"ids"}},
		{`{"ids": [null], ` + rest, []string{"ids"}},
		{`{"ids": ` + twice + `, ` + rest, []string{"ids"}},
		{`{"ids": ` + ids(151) + `, ` + rest, []string{"ids"}},
		{`{"ids": ` + ids(3) + `, "limit": 2, ` + rest, []string{"ids"}},
		{`{` + some + `"limit": 0, "rate": 0.09, ` + rest, []string{"limit", "rate"}},
		{`{` + some + `"limit": 151, "rate": 100.1, ` + rest, []string{"limit", "rate"}},
		{`{` + some + `"limit": 1.5, "rate": "10", ` + rest, []string{"limit", "rate"}},
		{`{` + some + `"limit": null, "rate": null, "deadline": null, "permanent": null, "dry_run": null, ` + rest, []string{"deadline", "dry_run", "limit", "permanent", "rate"}},
		{`{` + some + `"limit": "1", "rate": 1e999, "permanent": "true", "dry_run": 1, ` + rest, []string{"dry_run", "limit", "permanent", "rate"}},
		{`{` + some + `"deadline": "2031-03-04T09:00:00Z", ` + rest, []string{"deadline"}},
		{`{` + some + `"deadline": "2031-03-04T08:59:59Z", ` + rest, []string{"deadline"}},
		{`{` + some + `"deadline": "9999-01-01T00:00:00Z", ` + rest, []string{"deadline"}},
		{`{` + some + `"deadline": "tomorrow", "reason": " "}`, []string{"deadline", "reason"}},
		{`{` + some + `"dryrun": true, ` + rest, []string{"dryrun"}},
	} {
		w := h.expect(request("POST", "/v1/admin/redrives", "operator", c.body), 400, wire.ProblemCodeInvalid)
		var fields []string
		for _, fault := range decoded[wire.Problem](t, w).Errors {
			fields = append(fields, fault.Field)
		}
		if diff := cmp.Diff(c.fields, fields); diff != "" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%.120s: %s\n(-want +got):\n%s", c.body, w.Body, diff)
		}
	}
}

func TestReadRedrive_IdempotencyKeyIsOneWordOrNone(t *testing.T) {
	h, got := newRedriveHarness(t)
	for _, c := range []struct {
		keys  []string
		right bool
	}{
		{nil, true},
		{[]string{"k"}, true},
		{[]string{strings.Repeat("k", 255)}, true},
		{[]string{""}, false},
		{[]string{strings.Repeat("k", 256)}, false},
		{[]string{"canary\x7f"}, false},
		{[]string{"canäry"}, false},
		{[]string{"k", "k"}, false},
	} {
		r := request("POST", "/v1/admin/redrives", "operator", aRedriveRequest)
		r.Header["Idempotency-Key"] = c.keys
		if c.right {
			h.expect(r, 202, "")
			if got.IdempotencyKey != strings.Join(c.keys, "") {
				t.Errorf("the key is %q", got.IdempotencyKey)
			}
			continue
		}
		*got = ledger.RedriveRequest{}
		p := decoded[wire.Problem](t, h.expect(r, 400, wire.ProblemCodeInvalid))
		if len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" || got.RequestHash != "" {
			t.Errorf("%q: %+v", c.keys, p)
		}
	}
}

// actionRoutes are the routes of actions, each with a valid body.
func actionRoutes() map[string]string {
	id := deadLetter(nil).EntryID()
	return map[string]string{
		"POST /v1/admin/entries/" + id + "/resolve":      aResolution,
		"POST /v1/admin/reconciliation/runs":             `{"reason": "x"}`,
		"POST /v1/admin/dead-letters/" + id + "/discard": `{"reason": "x", "version": 3}`,
		"POST /v1/admin/redrives":                        aRedriveRequest,
		"POST /v1/admin/redrives/R1/cancel":              `{"reason": "x"}`,
		"POST /v1/admin/providers/mail/pause":            `{"reason": "x"}`,
		"POST /v1/admin/providers/mail/resume":           `{"reason": "x"}`,
		"DELETE /v1/admin/users/u-77/data":               `{"reason": "x"}`,
	}
}

func TestActions_RefuseUnknownMembers(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for route, body := range actionRoutes() {
		method, target, _ := strings.Cut(route, " ")
		for _, member := range []string{
			"state", "attempts", "sent_at", "redrives", "holder", "send_key", "actor", "by", "role", "at", "id", "key", "hash", "canari", "class", "Reason",
		} {
			w := h.expect(request(method, target, "admin", `{"`+member+`": "canary", `+body[1:]), 400, wire.ProblemCodeInvalid)
			faults := decoded[wire.Problem](t, w).Errors
			if len(faults) != 1 || faults[0].Field != member || strings.Contains(w.Body.String(), "canary") {
				t.Errorf("%s with %s: %s", route, member, w.Body)
			}
		}
	}
}

func TestActions_BodyIsBoundedPlainJSONFromAllowedRoles(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for route, body := range actionRoutes() {
		method, target, _ := strings.Cut(route, " ")
		h.expect(request(method, target, "admin", ""), 415, wire.ProblemCodeUnsupportedMediaType)
		h.expect(request(method, target, "admin", strings.Repeat(" ", bodyLimit+1)), 413, wire.ProblemCodeTooLarge)
		h.expect(request(method, target, "admin", "null"), 400, wire.ProblemCodeInvalid)
		w := h.expect(request(method, target, "admin", "{}"), 400, wire.ProblemCodeInvalid)
		if !strings.Contains(w.Body.String(), `{"field":"reason","problem":"is required`) {
			t.Errorf("%s without a reason: %s", route, w.Body)
		}
		coded := request(method, target, "admin", body)
		coded.Header.Set("Content-Encoding", "gzip")
		h.expect(coded, 415, wire.ProblemCodeUnsupportedMediaType)
		barred := request(method, target, "support", body)
		barred.Body = unreadable{t}
		h.expect(barred, 403, wire.ProblemCodeForbidden)
	}
}

func TestOpenAPI_ActionExamplesAreAccepted(t *testing.T) {
	h := newHarness(t, working())
	for path, item := range h.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if !strings.HasPrefix(path, "/v1/admin/") || operation.RequestBody == nil {
				continue
			}
			body, err := json.Marshal(operation.RequestBody.Value.Content["application/json"].Schema.Value.Example)
			if err != nil {
				t.Fatal(err)
			}
			target := strings.NewReplacer("{id}", deadLetter(nil).EntryID(), "{name}", "mail", "{user_id}", "u-77").Replace(path)
			if w := h.do(request(method, target, "admin", string(body))); w.Code >= 300 {
				t.Errorf("%s %s refuses openapi.yaml's example: %s", method, path, w.Body)
			}
			err = openapi3filter.ValidateRequestBody(t.Context(), &openapi3filter.RequestValidationInput{
				Request: request(method, target, "admin", string(body)),
				Route:   &routers.Route{Spec: h.doc, Operation: operation, Path: path, Method: method},
			}, operation.RequestBody.Value)
			if err != nil {
				t.Errorf("openapi.yaml refuses %s: %v", body, err)
			}
		}
	}
	if h.doc.Paths.Value("/v1/admin/users/{user_id}/data").GetOperation(http.MethodDelete).RequestBody == nil {
		t.Error("an erasure has no request body")
	}
}
