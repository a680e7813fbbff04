package api

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// newDetailHarness returns a harness whose entry reader returns the same detail for every id.
func newDetailHarness(t *testing.T, detail ledger.EntryDetail) *harness {
	t.Helper()
	return newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) { return detail, nil }})
}

func TestPayload_MaskedForSupportFullForOperator(t *testing.T) {
	dead := deadLetter(nil)
	parsed := ledger.EntryDetail{Entry: dead, Payload: &ledger.Payload{
		Recipient: "ada@example.org", Content: []byte(`{"b": 1.0, "a": "<canary>"}`), Metadata: []byte(`{"m": "canary"}`),
	}}
	malformed := ledger.EntryDetail{Entry: dead, Payload: &ledger.Payload{Metadata: []byte(`{"faults":["canary"]}`), Raw: []byte("\xffcanary")}}
	raw := base64.StdEncoding.EncodeToString([]byte("\xffcanary"))
	for _, c := range []struct {
		name   string
		detail ledger.EntryDetail
		masked string
		full   string
	}{
		{
			"a reminder", parsed, `"payload":{"to":"a***@example.org","masked":true}`,
			`"payload":{"to":"ada@example.org","content":{"b":1.0,"a":"\u003ccanary\u003e"},"metadata":{"m":"canary"}}`,
		},
		{
			"malformed", malformed, `"payload":{"masked":true}`,
			`"payload":{"metadata":{"faults":["canary"]},"raw":"` + raw + `"}`,
		},
		{
			"content that is not JSON",
			ledger.EntryDetail{Entry: dead, Payload: &ledger.Payload{Recipient: "+49 151 23442", Content: []byte(`{"a"`)}},
			`"payload":{"to":"***42","masked":true}`, `"payload":{"to":"+49 151 23442"}`,
		},
	} {
		h := newDetailHarness(t, c.detail)
		for token, want := range map[string]string{"support": c.masked, "operator": c.full, "admin": c.full} {
			for _, path := range []string{"/v1/admin/entries/", "/v1/admin/dead-letters/"} {
				body := h.expect(request("GET", path+dead.EntryID(), token, ""), 200, "").Body.String()
				if !strings.Contains(body, want) || strings.Contains(body, "payload_purged") {
					t.Errorf("%s, %s: %s", c.name, token, body)
				}
				if token == "support" && strings.Contains(body, "canary") {
					t.Errorf("%s: support sees %s", c.name, body)
				}
			}
		}
	}
}

func TestMasked_KeepsEnoughToTellTwoApart(t *testing.T) {
	for to, want := range map[string]string{
		"ada@example.org":    "a***@example.org",
		"a@example.org":      "a***@example.org",
		"Ä.b@bücher.example": "Ä***@bücher.example",
		`"a@b"@example.org`:  `"***@example.org`,
		"+4915123442":        "***42",
		"abcde":              "***de",
		"abcd":               "***",
		"42":                 "***",
		"":                   "",
		"@example.org":       "***rg",
		"ada@":               "***",
		"https://u:p@hooks.example/T0/secret-canary": "***ry",
		"device-token@secret/canary":                 "***ry",
		"日本語の宛先":                                     "***宛先",
	} {
		if got := masked(to); got != want {
			t.Errorf("%q is masked as %q, not %q", to, got, want)
		}
	}
}

func TestPayload_PurgedIsReported(t *testing.T) {
	first := func(kind ledger.EventKind, origin ledger.Origin, reason ledger.Reason) ledger.TimelineEvent {
		return ledger.TimelineEvent{Version: 1, Kind: kind, Origin: origin, State: ledger.Dropped, Reason: reason, At: testNow}
	}
	sent := first(ledger.EventDecision, ledger.OriginPush, ledger.ReasonScheduled)
	cancelled := first(ledger.EventDecision, ledger.OriginAPI, ledger.ReasonCancelled)
	later := cancelled
	later.Version = 2
	for _, c := range []struct {
		name    string
		payload *ledger.Payload
		lines   []ledger.TimelineEvent
		purged  bool
	}{
		{"kept", &ledger.Payload{Recipient: "ada@example.org"}, []ledger.TimelineEvent{sent}, false},
		{"purged", nil, []ledger.TimelineEvent{sent}, true},
		{"cancelled later, and purged", nil, []ledger.TimelineEvent{sent, later}, true},
		{"no timeline", nil, nil, true},
		{"a tombstone", nil, []ledger.TimelineEvent{cancelled}, false},
		{"a tombstone, delivered later", nil, []ledger.TimelineEvent{cancelled, later}, false},
		{"known to its provider only", nil, []ledger.TimelineEvent{first(ledger.EventStatus, ledger.OriginProvider, ledger.ReasonLateAcceptance)}, false},
	} {
		h := newDetailHarness(t, ledger.EntryDetail{Entry: entry(nil), Payload: c.payload, Timeline: c.lines})
		w := h.expect(request("GET", "/v1/admin/entries/"+entry(nil).EntryID(), "operator", ""), 200, "")
		got := decoded[wire.EntryDetail](t, w)
		if got.PayloadPurged != c.purged || strings.Contains(w.Body.String(), `"payload":`) != (c.payload != nil) {
			t.Errorf("%s: %s", c.name, w.Body)
		}
	}
}

func TestEntryOf_HasProviderCodeAndRedrives(t *testing.T) {
	e := deadLetter(func(e *ledger.Entry) { e.Redrives = 2 })
	got := entryOf(e, testNow)
	if diff := cmp.Diff([]any{"slow_down", 2}, []any{got.Code, got.Redrives}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
