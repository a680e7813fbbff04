package ingest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
)

func newBase(t *testing.T, limit int64) ingest.Base {
	t.Helper()
	b, err := ingest.NewBase(ingest.Options{Source: "seats", Limit: limit, Auth: ingest.None{}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNewBase_UnsafeOptionsAreRejected(t *testing.T) {
	for name, o := range map[string]ingest.Options{
		"no source":        {Limit: 1, Auth: ingest.None{}},
		"no limit":         {Source: "s", Auth: ingest.None{}},
		"a negative limit": {Source: "s", Limit: -1, Auth: ingest.None{}},
		"no authenticator": {Source: "s", Limit: 1},
	} {
		if _, err := ingest.NewBase(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLimitSize_MessageWithinLimitIsUnchanged(t *testing.T) {
	raw := []byte(strings.Repeat("x", 5000))
	want := ledger.Delivery{Source: "seats", MessageID: "m", Raw: raw}
	if diff := cmp.Diff(want, newBase(t, 5000).LimitSize(ledger.Delivery{MessageID: "m", Raw: raw})); diff != "" {
		t.Error(diff)
	}
}

func TestLimitSize_OversizeMessageKeepsHeadAndHash(t *testing.T) {
	b := newBase(t, 5000)
	raw := []byte(strings.Repeat("x", 5001))
	got := b.LimitSize(ledger.Delivery{MessageID: "m", Raw: raw})
	want := ledger.Delivery{
		Source: "seats", MessageID: "m", Fault: "over the limit of 5000 bytes",
		// head -c 5001 /dev/zero | tr '\0' x | sha256sum
		Raw: []byte(strings.Repeat("x", 4096) + "\nsha256 89206d01a7a5f7f6d904c37e473b8b9c695376f9bada9711cde47b23aff314f9\n"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(raw) != 5001 || strings.Trim(string(raw), "x") != "" {
		t.Error("the caller's bytes were modified")
	}

	other := b.LimitSize(ledger.Delivery{MessageID: "m", Raw: append(raw, 'y')})
	if ledger.MalformedIdentity("seats", "m", got.Raw) == ledger.MalformedIdentity("seats", "m", other.Raw) {
		t.Error("two messages with the same head share a dead letter")
	}
	if again := b.LimitSize(ledger.Delivery{MessageID: "m", Raw: raw}); !cmp.Equal(got, again) {
		t.Error("the same message has two dead letters")
	}
}

func TestLimitSize_EarlierFaultIsKept(t *testing.T) {
	got := newBase(t, 3).LimitSize(ledger.Delivery{Fault: "first", Raw: []byte("long")})
	if got.Fault != "first" || !strings.HasPrefix(string(got.Raw), "long\nsha256 ") {
		t.Errorf("got fault %q over %q", got.Fault, got.Raw)
	}
}

func TestAnswer_IsAckOrNackWithoutBody(t *testing.T) {
	entry := ledger.Entry{Identity: ledger.Identity{ReminderID: "rem-1", Type: "t", Channel: "c"}, State: ledger.Sent}
	for name, c := range map[string]struct {
		reply  ledger.Reply
		status int
		retry  string
	}{
		"ack":                           {ledger.Reply{Ack: true, Entry: entry}, 204, ""},
		"ack of nothing recorded":       {ledger.Reply{Ack: true}, 204, ""},
		"nack without a wait":           {ledger.Reply{}, 503, "1"},
		"nack with a negative wait":     {ledger.Reply{RetryAfter: -time.Hour}, 503, "1"},
		"nack with a part of a second":  {ledger.Reply{RetryAfter: 1500 * time.Millisecond}, 503, "2"},
		"nack with more than is useful": {ledger.Reply{RetryAfter: 48 * time.Hour}, 503, "600"},
	} {
		w := httptest.NewRecorder()
		newBase(t, 1).Answer(w, c.reply)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retry || w.Body.Len() != 0 {
			t.Errorf("%s: %d, Retry-After %q, body %q", name, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		for header := range w.Header() {
			if strings.HasPrefix(strings.ToLower(header), "ce-") {
				t.Errorf("%s: the response has %s, which makes it an event", name, header)
			}
		}
	}
}

func TestReject_WritesProblemDocument(t *testing.T) {
	secret := errors.New("detail with a secret")
	for _, c := range []struct {
		err    error
		status int
		code   string
		header [2]string
	}{
		{ingest.ErrUnauthenticated, 401, "unauthenticated", [2]string{"WWW-Authenticate", "Bearer"}},
		{fmt.Errorf("%w: %w", ingest.ErrUnauthenticated, secret), 401, "unauthenticated", [2]string{"WWW-Authenticate", "Bearer"}},
		{ingest.ErrForbidden, 403, "forbidden", [2]string{}},
		{fmt.Errorf("%w: %w", ingest.ErrUnavailable, secret), 503, "unavailable", [2]string{"Retry-After", "10"}},
		{ingest.ErrTooLarge, 413, "too_large", [2]string{}},
		{ingest.ErrEncoding, 415, "unsupported_media_type", [2]string{}},
		{secret, 500, "internal", [2]string{}},
	} {
		w := httptest.NewRecorder()
		newBase(t, 1).Reject(w, c.err)
		body := w.Body.String()
		want := fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d,"code":%q,"detail":"`, http.StatusText(c.status), c.status, c.code)
		if w.Code != c.status || !strings.HasPrefix(body, want) || !strings.HasSuffix(body, ".\"}\n") || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%v: %d %s", c.err, w.Code, body)
		}
		if strings.Contains(body, "secret") {
			t.Errorf("%v: the response contains the error's text: %s", c.err, body)
		}
		if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%v: content type %q", c.err, got)
		}
		if c.header[0] != "" && w.Header().Get(c.header[0]) != c.header[1] {
			t.Errorf("%v: %s is %q", c.err, c.header[0], w.Header().Get(c.header[0]))
		}
	}
}

func TestTraceFrom_EnforcesLimits(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		h    http.Header
		want ledger.Trace
	}{
		"none":                     {http.Header{}, ledger.Trace{}},
		"both":                     {http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}}, ledger.Trace{Parent: parent, State: "a=1,b=2"}},
		"a state alone":            {http.Header{"Tracestate": {"a=1"}}, ledger.Trace{}},
		"a parent with a line end": {http.Header{"Traceparent": {parent + "\n"}}, ledger.Trace{}},
		"a parent too long":        {http.Header{"Traceparent": {strings.Repeat("0", 129)}}, ledger.Trace{}},
		"a state too long":         {http.Header{"Traceparent": {parent}, "Tracestate": {strings.Repeat("s", 513)}}, ledger.Trace{Parent: parent}},
	} {
		if diff := cmp.Diff(c.want, ingest.TraceFrom(c.h)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestAuthenticator_AcceptsOnlyKnownSecrets(t *testing.T) {
	token, err := ingest.NewBearer([]string{"new-token", "old-token"})
	if err != nil {
		t.Fatal(err)
	}
	header, err := ingest.NewHeader("x-secret", []string{"new-token", "old-token"})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a", 16<<10)
	for name, c := range map[string]struct {
		auth ingest.Authenticator
		h    http.Header
		ok   bool
	}{
		"the new token":         {token, http.Header{"Authorization": {"Bearer new-token"}}, true},
		"the old token":         {token, http.Header{"Authorization": {"bearer old-token"}}, true},
		"no header":             {token, http.Header{}, false},
		"an empty header":       {token, http.Header{"Authorization": {""}}, false},
		"a scheme alone":        {token, http.Header{"Authorization": {"Bearer"}}, false},
		"an empty token":        {token, http.Header{"Authorization": {"Bearer "}}, false},
		"a token alone":         {token, http.Header{"Authorization": {"new-token"}}, false},
		"another scheme":        {token, http.Header{"Authorization": {"Basic new-token"}}, false},
		"another token":         {token, http.Header{"Authorization": {"Bearer new-tokem"}}, false},
		"another case":          {token, http.Header{"Authorization": {"Bearer NEW-TOKEN"}}, false},
		"a part":                {token, http.Header{"Authorization": {"Bearer new-toke"}}, false},
		"more":                  {token, http.Header{"Authorization": {"Bearer new-token2"}}, false},
		"both tokens":           {token, http.Header{"Authorization": {"Bearer new-token old-token"}}, false},
		"two headers":           {token, http.Header{"Authorization": {"Bearer new-token", "Bearer new-token"}}, false},
		"a mebibyte of dots":    {token, http.Header{"Authorization": {"Bearer " + strings.Repeat(".", 1<<20)}}, false},
		"the new secret":        {header, http.Header{"X-Secret": {"new-token"}}, true},
		"the old secret":        {header, http.Header{"X-Secret": {"old-token"}}, true},
		"no secret":             {header, http.Header{}, false},
		"an empty secret":       {header, http.Header{"X-Secret": {""}}, false},
		"another secret":        {header, http.Header{"X-Secret": {"new-token,old-token"}}, false},
		"two secrets":           {header, http.Header{"X-Secret": {"new-token", "old-token"}}, false},
		"the secret as a token": {header, http.Header{"Authorization": {"Bearer new-token"}}, false},
		"a secret too long":     {header, http.Header{"X-Secret": {long + "a"}}, false},
		"no authentication":     {ingest.None{}, http.Header{}, true},
	} {
		err := c.auth.Authenticate(context.Background(), c.h, nil)
		if c.ok && err != nil || !c.ok && !errors.Is(err, ingest.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBearerToken_LengthIsLimited(t *testing.T) {
	fits := "Bearer " + strings.Repeat("a", 16<<10-7)
	if _, ok := ingest.BearerToken(http.Header{"Authorization": {fits}}); !ok {
		t.Error("16 KiB were refused")
	}
	if _, ok := ingest.BearerToken(http.Header{"Authorization": {fits + "a"}}); ok {
		t.Error("16 KiB and a byte were accepted")
	}
}

func TestBearerToken_SeveralSpacesMayPrecedeIt(t *testing.T) {
	for value, want := range map[string]string{
		"Bearer t0ken": "t0ken", "Bearer  t0ken": "t0ken", "bearer     t0ken": "t0ken",
		"Bearer ": "", "Bearer    ": "", "Bearer": "", "Bearert0ken": "", "Bearer\tt0ken": "", " Bearer t0ken": "",
	} {
		if got, ok := ingest.BearerToken(http.Header{"Authorization": {value}}); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %v", value, got, ok)
		}
	}
}

func TestNewAuthenticator_UnsafeSecretsAreRejected(t *testing.T) {
	for name, values := range map[string][]string{
		"none":                   nil,
		"an empty one":           {""},
		"an empty one of 2":      {"good", ""},
		"only spaces":            {"   "},
		"a line end from a file": {"canary-1\n"},
		"a space in front":       {" canary-1"},
		"a control sign":         {"canary-1\x00x"},
	} {
		_, bearer := ingest.NewBearer(values)
		_, header := ingest.NewHeader("x-secret", values)
		for _, err := range []error{bearer, header} {
			if err == nil {
				t.Errorf("%s: accepted", name)
			} else if strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: the error contains the secret: %v", name, err)
			}
		}
	}
	if _, err := ingest.NewHeader("", []string{"good"}); err == nil {
		t.Error("a header without a name was accepted")
	}
}
