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

func TestAHostileIDStaysInsideItsLine(t *testing.T) {
	for _, id := range []string{
		"a\r\nlevel=ERROR msg=forged", "a\n{\"level\":\"ERROR\",\"msg\":\"forged\"}", "\x1b[2J\x1b[31mred", `"},{"msg":"forged"`,
		"\u009b2Jc1", "\u202Eesrever", "\u2028line", "bad\xffutf8", "nul\x00", strings.Repeat("ä", 5000),
	} {
		for _, text := range []bool{false, true} {
			r := newRig(t)
			r.Telemetry.log = NewLogger(r.log, slog.LevelInfo, text)
			e := entry(ledger.Sent, ledger.ReasonAccepted, "")
			e.ReminderID = id
			del := ledger.Delivery{Source: "s", MessageID: id}
			if _, err := r.Deliverer(desk{reply: ledger.Reply{Entry: e}, err: errors.New(id)}).Deliver(t.Context(), del); err != nil && err.Error() != id {
				t.Fatal(err)
			}
			out := r.log.String()
			if strings.Count(out, "\n") != 1 || strings.ContainsAny(strings.TrimSuffix(out, "\n"), "\r\n\x1b\x00\u009b\u202e\u2028") {
				t.Errorf("%q broke out: %q", id, out)
			}
			if len(out) > 4000 {
				t.Errorf("a line of %d bytes", len(out))
			}
			if !text {
				if line := r.lines()[0]; line["msg"] != "delivery" || line["level"] != "ERROR" {
					t.Errorf("%q forged %v", id, line)
				}
			}
		}
	}
}

// canaries must show up nowhere.
var canaries = []string{
	"ada.canary@example.org", "+49 170 5550 142", "canaryPushToken:APA91bHun4MxP5egoKMwt", "Canarius", "CanaryBodyText", "canary-Bearer-s3cr3t",
}

func TestNoRecipientContentOrTokenIsEverTold(t *testing.T) {
	address, phone, token, name, body, bearer := canaries[0], canaries[1], canaries[2], canaries[3], canaries[4], canaries[5]
	content := fmt.Sprintf(`{"subject":"Dear %s","text":"%s"}`, name, body)
	for _, to := range []string{address, phone, token} {
		r := newRig(t)
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
			next := desk{reply: reply, err: err, see: func(ctx context.Context) {
				r.Sender(wire(func(context.Context) ledger.Outcome { return outcome })).Send(ctx, to, shipment)
			}}
			_, _ = r.Deliverer(next).Deliver(t.Context(), ledger.Delivery{Source: "s", MessageID: "m", Raw: []byte(raw)})
			_, _ = r.Requester(next).Request(t.Context(), "checkout", reminder.Reminder{To: to, Content: []byte(content)}, ledger.Trace{})
		}
		swallow(func() {
			_, _ = r.Deliverer(desk{see: func(context.Context) { panic(content + to) }}).Deliver(t.Context(), ledger.Delivery{})
		})
		swallow(func() {
			r.Sender(wire(func(context.Context) ledger.Outcome { panic(content + to) })).Send(t.Context(), "mail", shipment)
		})
		swallow(func() {
			q := httptest.NewRequest(http.MethodPost, "/v1/push/"+name+"?q="+body, strings.NewReader(raw))
			q.Header.Set("Authorization", "Bearer "+bearer)
			q.Header.Set("User-Agent", name)
			q.Header.Set("X-Forwarded-For", phone)
			q.Host = name
			r.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(content + to) })).ServeHTTP(httptest.NewRecorder(), q)
		})
		r.look(t.Context(), failing{leaky[0]}, 1e9)

		spans := fmt.Sprintf("%+v", r.spans.GetSpans())
		if len(r.spans.GetSpans()) != 4*len(leaky)+3 {
			t.Errorf("%d spans", len(r.spans.GetSpans()))
		}
		for where, told := range map[string]string{"log": r.log.String(), "spans": spans, "metrics": r.exposition()} {
			// Escapes must not hide a canary from this test.
			told = strings.ReplaceAll(told, `\u002b`, "+")
			for _, c := range append(canaries, "APA91bHun4MxP5egoKMwt") {
				if i := strings.Index(told, c); i >= 0 {
					t.Errorf("%s tell %q: …%s…", where, c, told[max(0, i-80):min(len(told), i+80)])
				}
			}
		}
	}
}

func swallow(f func()) {
	defer func() { _ = recover() }()
	f()
}

func TestAnErrorStaysReadable(t *testing.T) {
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

func TestTheLoggerKeepsToItsLevel(t *testing.T) {
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelWarn, false)
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Error(got)
	}
}
