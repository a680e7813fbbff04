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

// asking is a house that keeps what it was last asked of a redrive, and takes at most 150 items.
func asking(t *testing.T) (*house, *ledger.RedriveRequest) {
	t.Helper()
	asked := &ledger.RedriveRequest{}
	h := newHouse(t, &collaborators{desks: desks{redrive: func(_ context.Context, ask ledger.RedriveRequest) (ledger.Redrive, bool, error) {
		*asked = ask
		return aRedrive(nil), false, nil
	}}}, func(o *Options) { o.MaxItems = 150 })
	return h, asked
}

func ids(n int) string {
	var all []string
	for i := range n {
		all = append(all, ledger.Identity{ReminderID: fmt.Sprint("r-", i), Type: "t", Channel: "email"}.EntryID())
	}
	text, _ := json.Marshal(all) // texts always marshal
	return string(text)
}

func TestEveryMemberOfARedriveIsRead(t *testing.T) {
	h, got := asking(t)
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
		h.wants(request("POST", "/v1/admin/redrives", "operator", body), 202, "")
		want.Act, want.Hash, want.Asked = ledger.Act{By: "oncall", Role: "operator", Why: "x"}, got.Hash, got.Asked
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if !json.Valid([]byte(got.Asked)) {
			t.Errorf("kept as %s", got.Asked)
		}
	}
	h.wants(request("POST", "/v1/admin/redrives", "operator", `{"ids": `+ids(150)+`, "reason": "x"}`), 202, "")
	if len(got.IDs) != 150 {
		t.Errorf("%d ids", len(got.IDs))
	}
}

func TestTheSameRequestHasOneHashAndNoOtherHasIt(t *testing.T) {
	h, got := asking(t)
	hashOf := func(body string) string {
		h.wants(request("POST", "/v1/admin/redrives", "operator", body), 202, "")
		return got.Hash
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
	hashes := map[string]string{same: "the first"}
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

func TestARedriveThatIsNotClearRedrivesNothing(t *testing.T) {
	h := newHouse(t, &collaborators{}, func(o *Options) { o.MaxItems = 150 })
	const some, why = `"filter": {"code": "x"}, `, `"reason": "x"}`
	twice := `["` + deadLetter(nil).EntryID() + `", "` + deadLetter(nil).EntryID() + `"]`
	for _, c := range []struct {
		body   string
		fields []string
	}{
		{`{}`, []string{"filter", "reason"}},
		{`{` + why, []string{"filter"}},
		{`{"filter": {}, ` + why, []string{"filter"}},
		{`{"filter": null, ` + why, []string{"filter"}},
		{`{"filter": [], ` + why, []string{"filter"}},
		{`{"filter": "class", ` + why, []string{"filter"}},
		{`{` + some + `"ids": ` + ids(1) + `, ` + why, []string{"filter"}},
		{`{"filter": {"class": "credentials"}, ` + why, []string{"filter.class"}},
		{`{"filter": {"state": "dead", "Class": "exhausted", "canari": "canary"}, ` + why, []string{"filter.Class", "filter.canari", "filter.state"}},
		{`{"filter": {"class": "a", "class": "b"}, ` + why, []string{""}},
		{
			`{"filter": {"type": "", "channel": 1, "provider": null, "code": "\u00e4", "reservation_id": ["canary"], "user_id": "` + strings.Repeat("a", 256) + `"}, ` + why,
			[]string{"filter.channel", "filter.code", "filter.provider", "filter.reservation_id", "filter.type", "filter.user_id"},
		},
		{`{"filter": {"from": "yesterday", "to": 1}, ` + why, []string{"filter.from", "filter.to"}},
		{`{"filter": {"from": "2031-03-04T09:00:00Z", "to": "2031-03-04T09:00:00Z"}, ` + why, []string{"filter.to"}},
		{`{"ids": [], ` + why, []string{"ids"}},
		{`{"ids": null, ` + why, []string{"ids"}},
		{`{"ids": {"canary": 1}, ` + why, []string{"ids"}},
		{`{"ids": ["canary"], ` + why, []string{"ids"}},
		{`{"ids": [1], ` + why, []string{"ids"}},
		{`{"ids": [null], ` + why, []string{"ids"}},
		{`{"ids": ` + twice + `, ` + why, []string{"ids"}},
		{`{"ids": ` + ids(151) + `, ` + why, []string{"ids"}},
		{`{"ids": ` + ids(3) + `, "limit": 2, ` + why, []string{"ids"}},
		{`{` + some + `"limit": 0, "rate": 0.09, ` + why, []string{"limit", "rate"}},
		{`{` + some + `"limit": 151, "rate": 100.1, ` + why, []string{"limit", "rate"}},
		{`{` + some + `"limit": 1.5, "rate": "10", ` + why, []string{"limit", "rate"}},
		{`{` + some + `"limit": null, "rate": null, "deadline": null, "permanent": null, "dry_run": null, ` + why, []string{"deadline", "dry_run", "limit", "permanent", "rate"}},
		{`{` + some + `"limit": "1", "rate": 1e999, "permanent": "true", "dry_run": 1, ` + why, []string{"dry_run", "limit", "permanent", "rate"}},
		{`{` + some + `"deadline": "2031-03-04T09:00:00Z", ` + why, []string{"deadline"}},
		{`{` + some + `"deadline": "2031-03-04T08:59:59Z", ` + why, []string{"deadline"}},
		{`{` + some + `"deadline": "9999-01-01T00:00:00Z", ` + why, []string{"deadline"}},
		{`{` + some + `"deadline": "tomorrow", "reason": " "}`, []string{"deadline", "reason"}},
		{`{` + some + `"dryrun": true, ` + why, []string{"dryrun"}},
	} {
		w := h.wants(request("POST", "/v1/admin/redrives", "operator", c.body), 400, wire.ProblemCodeInvalid)
		var fields []string
		for _, fault := range decoded[wire.Problem](t, w).Errors {
			fields = append(fields, fault.Field)
		}
		if diff := cmp.Diff(c.fields, fields); diff != "" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%.120s: %s\n(-want +got):\n%s", c.body, w.Body, diff)
		}
	}
}

func TestAKeyIsOneWordOrNone(t *testing.T) {
	h, got := asking(t)
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
			h.wants(r, 202, "")
			if got.Key != strings.Join(c.keys, "") {
				t.Errorf("the key is %q", got.Key)
			}
			continue
		}
		*got = ledger.RedriveRequest{}
		p := decoded[wire.Problem](t, h.wants(r, 400, wire.ProblemCodeInvalid))
		if len(p.Errors) != 1 || p.Errors[0].Field != "Idempotency-Key" || got.Hash != "" {
			t.Errorf("%q: %+v", c.keys, p)
		}
	}
}

// acts are the routes that act, each with a body that it takes.
func acts() map[string]string {
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

func TestNobodyGivesAnActMoreMembersThanItTakes(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for act, body := range acts() {
		method, target, _ := strings.Cut(act, " ")
		for _, member := range []string{
			"state", "attempts", "sent_at", "redrives", "holder", "send_key", "by", "who", "role", "at", "id", "key", "hash", "canari", "class", "Reason",
		} {
			w := h.wants(request(method, target, "admin", `{"`+member+`": "canary", `+body[1:]), 400, wire.ProblemCodeInvalid)
			faults := decoded[wire.Problem](t, w).Errors
			if len(faults) != 1 || faults[0].Field != member || strings.Contains(w.Body.String(), "canary") {
				t.Errorf("%s with %s: %s", act, member, w.Body)
			}
		}
	}
}

func TestAnActIsBoundedPlainJSONFromThoseWhoMay(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for act, body := range acts() {
		method, target, _ := strings.Cut(act, " ")
		h.wants(request(method, target, "admin", ""), 415, wire.ProblemCodeUnsupportedMediaType)
		h.wants(request(method, target, "admin", strings.Repeat(" ", bodyLimit+1)), 413, wire.ProblemCodeTooLarge)
		h.wants(request(method, target, "admin", "null"), 400, wire.ProblemCodeInvalid)
		w := h.wants(request(method, target, "admin", "{}"), 400, wire.ProblemCodeInvalid)
		if !strings.Contains(w.Body.String(), `{"field":"reason","problem":"is required`) {
			t.Errorf("%s without a reason: %s", act, w.Body)
		}
		coded := request(method, target, "admin", body)
		coded.Header.Set("Content-Encoding", "gzip")
		h.wants(coded, 415, wire.ProblemCodeUnsupportedMediaType)
		barred := request(method, target, "support", body)
		barred.Body = unreadable{t}
		h.wants(barred, 403, wire.ProblemCodeForbidden)
	}
}

func TestTheDocumentTakesTheActsThatTheHandlersTake(t *testing.T) {
	h := newHouse(t, willing())
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
				t.Errorf("%s %s refuses the document's example: %s", method, path, w.Body)
			}
			err = openapi3filter.ValidateRequestBody(t.Context(), &openapi3filter.RequestValidationInput{
				Request: request(method, target, "admin", string(body)),
				Route:   &routers.Route{Spec: h.doc, Operation: operation, Path: path, Method: method},
			}, operation.RequestBody.Value)
			if err != nil {
				t.Errorf("the document refuses %s: %v", body, err)
			}
		}
	}
	if h.doc.Paths.Value("/v1/admin/users/{user_id}/data").GetOperation(http.MethodDelete).RequestBody == nil {
		t.Error("an erasure is without a reason")
	}
}
