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

// telling is a house that tells one story, whatever it is asked for.
func telling(t *testing.T, story ledger.Story) *house {
	t.Helper()
	return newHouse(t, &collaborators{story: func(context.Context, ledger.Identity) (ledger.Story, error) { return story, nil }})
}

func TestWhatWasSaidToWhomIsTheOperatorsToRead(t *testing.T) {
	letter := deadLetter(nil)
	said := ledger.Story{Entry: letter, Payload: &ledger.Payload{
		Recipient: "ada@example.org", Content: []byte(`{"b": 1.0, "a": "<canary>"}`), Metadata: []byte(`{"m": "canary"}`),
	}}
	malformed := ledger.Story{Entry: letter, Payload: &ledger.Payload{Metadata: []byte(`{"faults":["canary"]}`), Raw: []byte("\xffcanary")}}
	raw := base64.StdEncoding.EncodeToString([]byte("\xffcanary"))
	for _, c := range []struct {
		name   string
		story  ledger.Story
		masked string
		whole  string
	}{
		{
			"a reminder", said, `"payload":{"to":"a***@example.org","masked":true}`,
			`"payload":{"to":"ada@example.org","content":{"b":1.0,"a":"\u003ccanary\u003e"},"metadata":{"m":"canary"}}`,
		},
		{
			"what nobody could read", malformed, `"payload":{"masked":true}`,
			`"payload":{"metadata":{"faults":["canary"]},"raw":"` + raw + `"}`,
		},
		{
			"content that is none",
			ledger.Story{Entry: letter, Payload: &ledger.Payload{Recipient: "+49 151 23442", Content: []byte(`{"a"`)}},
			`"payload":{"to":"***42","masked":true}`, `"payload":{"to":"+49 151 23442"}`,
		},
	} {
		h := telling(t, c.story)
		for token, want := range map[string]string{"support": c.masked, "operator": c.whole, "admin": c.whole} {
			for _, path := range []string{"/v1/admin/entries/", "/v1/admin/dead-letters/"} {
				body := h.wants(request("GET", path+letter.EntryID(), token, ""), 200, "").Body.String()
				if !strings.Contains(body, want) || strings.Contains(body, "payload_purged") {
					t.Errorf("%s, %s: %s", c.name, token, body)
				}
				if token == "support" && strings.Contains(body, "canary") {
					t.Errorf("%s: support is told %s", c.name, body)
				}
			}
		}
	}
}

func TestARecipientIsMaskedAsFarAsItTakesToTellTwoApart(t *testing.T) {
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

func TestAPayloadThatWentIsSaidToBeGone(t *testing.T) {
	born := func(kind ledger.EventKind, origin ledger.Origin, why ledger.Reason) ledger.Event {
		return ledger.Event{Version: 1, Kind: kind, Origin: origin, State: ledger.Dropped, Reason: why, At: testNow}
	}
	sent := born(ledger.EventDecision, ledger.OriginPush, ledger.ReasonScheduled)
	cancelled := born(ledger.EventDecision, ledger.OriginAPI, ledger.ReasonCancelled)
	later := cancelled
	later.Version = 2
	for _, c := range []struct {
		name    string
		payload *ledger.Payload
		lines   []ledger.Event
		purged  bool
	}{
		{"kept", &ledger.Payload{Recipient: "ada@example.org"}, []ledger.Event{sent}, false},
		{"purged", nil, []ledger.Event{sent}, true},
		{"cancelled later, and purged", nil, []ledger.Event{sent, later}, true},
		{"no timeline", nil, nil, true},
		{"a tombstone", nil, []ledger.Event{cancelled}, false},
		{"a tombstone, delivered later", nil, []ledger.Event{cancelled, later}, false},
		{"known to its provider alone", nil, []ledger.Event{born(ledger.EventReport, ledger.OriginProvider, ledger.ReasonLateAcceptance)}, false},
	} {
		h := telling(t, ledger.Story{Entry: entry(nil), Payload: c.payload, Timeline: c.lines})
		w := h.wants(request("GET", "/v1/admin/entries/"+entry(nil).EntryID(), "operator", ""), 200, "")
		got := decoded[wire.Story](t, w)
		if got.PayloadPurged != c.purged || strings.Contains(w.Body.String(), `"payload":`) != (c.payload != nil) {
			t.Errorf("%s: %s", c.name, w.Body)
		}
	}
}

func TestAnEntryTellsTheProvidersCodeAndItsRedrives(t *testing.T) {
	e := deadLetter(func(e *ledger.Entry) { e.Redrives = 2 })
	got := entryOf(e, testNow)
	if diff := cmp.Diff([]any{"slow_down", 2}, []any{got.Code, got.Redrives}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
