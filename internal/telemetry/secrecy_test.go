package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func TestLog_HostileIDStaysInItsLine(t *testing.T) {
	for _, id := range []string{
		"a\r\nlevel=ERROR msg=forged", "a\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[2J\x1b[31mred", `"},{"msg":"forged"`,
		"\u009b2Jc1", "\u202Eesrever", "\u2028line", "bad\xffutf8", "nul\x00", strings.Repeat("ä", 5000),
	} {
		for _, text := range []bool{false, true} {
			h := newHarness(t)
			h.Telemetry.log = NewLogger(h.log, slog.LevelInfo, text)
			e := entry(ledger.Sent, ledger.ReasonAccepted, "")
			e.ReminderID = id
			del := ledger.Delivery{Source: "s", MessageID: id}
			if _, err := h.Deliverer(fakeProcessor{reply: ledger.Reply{Entry: e}, err: errors.New(id)}).Deliver(t.Context(), del); err != nil && err.Error() != id {
				t.Fatal(err)
			}
			out := h.log.String()
			if strings.Count(out, "\n") != 1 || strings.ContainsAny(strings.TrimSuffix(out, "\n"), "\r\n\x1b\x00\u009b\u202e\u2028") {
				t.Errorf("%q was not escaped: %q", id, out)
			}
			if len(out) > 4000 {
				t.Errorf("a line of %d bytes", len(out))
			}
			if !text {
				if line := h.lines()[0]; line["msg"] != "delivery" || line["level"] != "ERROR" {
					t.Errorf("%q forged %v", id, line)
				}
			}
		}
	}
}

// canaries must not occur in any output.
var canaries = []string{
	"ada.canary@example.org", "+49 170 5550 142", "canaryPushToken:APA91bHun4MxP5egoKMwt", "Canarius", "CanaryBodyText", "canary-Bearer-s3cr3t",
}

func TestTelemetry_RevealsNoRecipientContentOrToken(t *testing.T) {
	address, phone, token, name, body, bearer := canaries[0], canaries[1], canaries[2], canaries[3], canaries[4], canaries[5]
	content := fmt.Sprintf(`{"subject":"Dear %s","text":"%s"}`, name, body)
	for _, to := range []string{address, phone, token} {
		h := newHarness(t)
		raw := fmt.Sprintf(`{"to":%q,"content":%s}`, to, content)
		leaky := []error{
			fmt.Errorf("ledger: insert: duplicate key: Key (recipient)=(%s) already exists", to),
			fmt.Errorf(`ledger: invalid input syntax for type json: "%s"`, content),
			fmt.Errorf("provider said: no such user %s (%s): %s", to, name, body),
			fmt.Errorf("refused:%s;to=%s", body, to),
			fmt.Errorf("postgres://gw:%s@db:5432/x: Authorization: Bearer %s", bearer, bearer),
			fmt.Errorf("Get https://x.example/send?key=%s: EOF", bearer),
		}
		outcome := ledger.Outcome{
			Result: ledger.ResultRefused, Receipt: "r", Status: 422,
			Code: "no_such_user " + to, RequestID: "req " + to, Cause: "status",
		}
		reply := ledger.Reply{Entry: entry(ledger.Dead, ledger.ReasonRefused, ledger.ClassPermanent), Outcome: &outcome}
		shipment := ledger.Shipment{Recipient: to, Content: []byte(content), Metadata: []byte(`{"who":"` + name + `"}`)}
		for _, err := range leaky {
			next := fakeProcessor{reply: reply, err: err, onCall: func(ctx context.Context) {
				h.Sender(fakeSender(func(context.Context) ledger.Outcome { return outcome })).Send(ctx, to, shipment)
			}}
			_, _ = h.Deliverer(next).Deliver(t.Context(), ledger.Delivery{Source: "s", MessageID: "m", Raw: []byte(raw)})
			_, _ = h.Requester(next).Request(t.Context(), "checkout", reminder.Reminder{To: to, Content: []byte(content)}, ledger.Trace{})
		}
		recovered(func() {
			_, _ = h.Deliverer(fakeProcessor{onCall: func(context.Context) { panic(content + to) }}).Deliver(t.Context(), ledger.Delivery{})
		})
		recovered(func() {
			h.Sender(fakeSender(func(context.Context) ledger.Outcome { panic(content + to) })).Send(t.Context(), "mail", shipment)
		})
		recovered(func() {
			q := httptest.NewRequest(http.MethodPost, "/v1/push/"+name+"?q="+body, strings.NewReader(raw))
			q.Header.Set("Authorization", "Bearer "+bearer)
			q.Header.Set("User-Agent", name)
			q.Header.Set("X-Forwarded-For", phone)
			q.Host = name
			h.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(content + to) })).ServeHTTP(httptest.NewRecorder(), q)
		})
		h.refresh(t.Context(), failingBacklog{leaky[0]}, 1e9)

		spans := fmt.Sprintf("%+v", h.spans.GetSpans())
		if len(h.spans.GetSpans()) != 4*len(leaky)+3 {
			t.Errorf("%d spans", len(h.spans.GetSpans()))
		}
		for where, text := range map[string]string{"log": h.log.String(), "spans": spans, "metrics": h.exposition()} {
			// Escapes must not hide a canary from this test.
			text = strings.ReplaceAll(text, `\u002b`, "+")
			for _, c := range append(canaries, "APA91bHun4MxP5egoKMwt") {
				if i := strings.Index(text, c); i >= 0 {
					t.Errorf("%s shows %q: …%s…", where, c, text[max(0, i-80):min(len(text), i+80)])
				}
			}
		}
	}
}

func recovered(f func()) {
	defer func() { _ = recover() }()
	f()
}

func TestRedact_KeepsErrorsReadable(t *testing.T) {
	for in, want := range map[string]string{
		"ledger: load: failed to connect: dial tcp 10.0.0.7:5432: connect: connection refused":  "ledger: load: failed to connect: dial tcp 10.0.0.7:5432: connect: connection refused",
		`ERROR: duplicate key value violates unique constraint "entries_pkey" (SQLSTATE 23505)`: "ERROR: duplicate key value violates unique constraint […] (SQLSTATE 23505)",
		"context deadline exceeded": "context deadline exceeded",
	} {
		if got := redact(in, `{"to":"x@example.org","content":{"text":"hello"}}`); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNewLogger_RespectsItsLevel(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelWarn, false)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Error(got)
	}
}
