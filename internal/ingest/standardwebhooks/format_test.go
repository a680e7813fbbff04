package standardwebhooks_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/standardwebhooks"
	"github.com/sendonce/sendonce/internal/ledger"
)

func format(t testing.TB, auth ingest.Authenticator) ingest.Format {
	t.Helper()
	f, err := standardwebhooks.New(ingest.Options{Source: "hooks", Limit: 256, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpen_BodyIsMessageAndIDIsSigned(t *testing.T) {
	both := svix()
	both.Set("webhook-id", "msg_signed")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		h    http.Header
		want ledger.Delivery
	}{
		"webhook headers":    {headers("traceparent", parent), ledger.Delivery{MessageID: vectorID, Trace: ledger.Trace{Parent: parent}}},
		"Svix headers":       {svix(), ledger.Delivery{MessageID: vectorID}},
		"both sets":          {both, ledger.Delivery{MessageID: "msg_signed"}},
		"none":               {nil, ledger.Delivery{}},
		"an id beyond ASCII": {headers("webhook-id", "mé"), ledger.Delivery{}},
	} {
		c.want.Source, c.want.Raw = "hooks", []byte(vectorBody)
		if diff := cmp.Diff(c.want, format(t, ingest.None{}).Open(c.h, []byte(vectorBody))); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if d := format(t, ingest.None{}).Open(nil, make([]byte, 257)); d.Fault != "over the limit of 256 bytes" {
		t.Errorf("257 bytes: fault %q", d.Fault)
	}
}

func TestFormat_AuthenticatesBySignatureAndAnswers(t *testing.T) {
	f := format(t, signature(t, vectorTime, vectorSecret))
	if err := f.Authenticate(context.Background(), headers(), []byte(vectorBody)); err != nil {
		t.Error(err)
	}
	rejected := httptest.NewRecorder()
	f.Reject(rejected, f.Authenticate(context.Background(), headers(), []byte("other")))
	ack, nack := httptest.NewRecorder(), httptest.NewRecorder()
	f.Answer(ack, ledger.Reply{Ack: true})
	f.Answer(nack, ledger.Reply{RetryAfter: 90 * time.Second})
	if rejected.Code != 401 || ack.Code != 204 || nack.Code != 503 || nack.Header().Get("Retry-After") != "90" {
		t.Errorf("rejected %d, ack %d, nack %d %v", rejected.Code, ack.Code, nack.Code, nack.Header())
	}
	if f, err := standardwebhooks.New(ingest.Options{Source: "s", Limit: 1}); err == nil || f != nil {
		t.Error("a format without an authenticator was built")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(vectorID, vectorSignature, "1767225600", []byte(vectorBody))
	f.Add("", " , v1,, v1", "9", []byte("\x00"))
	f.Add(strings.Repeat("x", 300), "v1,AA==", "-", bytes.Repeat([]byte("x"), 400))
	keys, err := standardwebhooks.NewSignature([]string{vectorSecret}, func() time.Time { return time.Unix(vectorTime, 0) })
	if err != nil {
		f.Fatal(err)
	}
	signed := format(f, keys)
	f.Fuzz(func(t *testing.T, id, list, stamp string, raw []byte) {
		h := headers("webhook-id", id, "webhook-signature", list, "webhook-timestamp", stamp)
		vector := id == vectorID && stamp == "1767225600" && string(raw) == vectorBody
		if err := signed.Authenticate(context.Background(), h, raw); err == nil && !vector {
			t.Error("an unsigned request was accepted")
		}
		d := signed.Open(h, raw)
		if d.Source != "hooks" || d.MessageID != "" && d.MessageID != id {
			t.Errorf("source %q, id %q of %q", d.Source, d.MessageID, id)
		}
		if whole := len(raw) <= 256; whole != (d.Fault == "") || whole && !bytes.Equal(d.Raw, raw) {
			t.Errorf("%d bytes: fault %q, message of %d", len(raw), d.Fault, len(d.Raw))
		}
	})
}
