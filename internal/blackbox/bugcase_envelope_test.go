package blackbox

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// checkMalformed delivers a message that is no valid reminder six times: each delivery is acked, and together
// they leave one dead letter.
func (g *gateway) checkMalformed(name, body string) {
	g.t.Helper()
	before := len(g.list(url.Values{"state": {"dead"}}))
	for range 6 {
		if a := g.push(body); !isAck(a) || a.plainReply(g.t).Reason != "malformed" {
			g.t.Errorf("%s: %s", name, a)
		}
	}
	dead := g.list(url.Values{"state": {"dead"}})
	if len(dead) != before+1 || dead[0].Class != "malformed" || dead[0].Attempts != 0 {
		g.t.Errorf("%s: from %d to %d dead letters", name, before, len(dead))
	}
	if a := g.post("/v1/reminders", body); a.status != http.StatusBadRequest {
		g.t.Errorf("%s over REST: %s", name, a)
	}
}

// checkUnknown checks that no entry is stored under an id.
func (g *gateway) checkUnknown(reminderID string) {
	g.t.Helper()
	if a := g.get("/v1/reminders/" + url.PathEscape(reminderID)); a.status != http.StatusNotFound {
		g.t.Errorf("entries of %s: %s", reminderID, a)
	}
}

// Bug: Go's usual decoder matches names without regard to case and lets the last one win, so that a proxy and
// the gateway read different ids.
func TestB06_AmbiguousMemberNamesAreRejected(t *testing.T) {
	p := startProvider(t)
	g := serve(t, configure(newSQLite(t), p))
	const rest = `"type":"seat_expiring","channel":"email","to":"p7@example.test","content":{"text":"t"}}`
	for name, body := range map[string]string{
		"another case":           `{"reminder_id":"rem-b06","Reminder_ID":"rem-evil",` + rest,
		"another case alone":     `{"REMINDER_ID":"rem-evil",` + rest,
		"a second one":           `{"reminder_id":"rem-b06","reminder_id":"rem-evil",` + rest,
		"a second one, escaped":  `{"reminder_id":"rem-b06","reminder\u005fid":"rem-evil",` + rest,
		"another recipient":      `{"reminder_id":"rem-b06","TO":"evil@example.test",` + rest,
		"a long s":               `{"reminder_id":"rem-b06","re` + "\u017f" + `ervation_id":"rem-evil",` + rest,
		"a long s, escaped":      `{"reminder_id":"rem-b06","u\u017fer_id":"rem-evil",` + rest,
		"a Kelvin sign":          `{"reminder_id":"rem-b06","` + "\u212a" + `ind":"rem-evil",` + rest,
		"a Kelvin sign, escaped": `{"reminder_id":"rem-b06","\u212aind":"rem-evil",` + rest,
		"twice inside content":   `{"reminder_id":"rem-b06","type":"t","channel":"email","to":"p7@example.test","content":{"text":"t","text":"evil"}}`,
		"twice inside metadata":  `{"reminder_id":"rem-b06","metadata":{"a":"1","a":"rem-evil"},` + rest,
		"a second document":      `{"reminder_id":"rem-b06",` + rest + `{"reminder_id":"rem-evil",` + rest,
		"the id as null":         `{"reminder_id":null,"reservation_id":"rem-evil",` + rest,
	} {
		g.checkMalformed(name, body)
	}
	g.checkUnknown("rem-b06")
	g.checkUnknown("rem-evil")
	if c := p.counts(); c.Calls != 0 {
		t.Errorf("%d calls", c.Calls)
	}
	if a := g.push(`{"reminder_id":"rem-b06",` + rest); !isAck(a) || a.plainReply(t).State != "sent" {
		t.Errorf("a valid message: %s", a)
	}
}

// Bug: PostgreSQL stores no U+0000 in text, so the insert failed at every redelivery.
func TestB07_NULCharacterIsADeadLetterNotARetryForEver(t *testing.T) {
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		g := serve(t, configure(database, p))
		in := func(member, value string) string {
			return strings.Replace(newReminder("rem-b07").with(member, "%").String(), `"%"`, value, 1)
		}
		bodies := map[string]string{
			"in the id":           in("reminder_id", `"rem-b07\u0000x"`),
			"in the content":      in("content", `{"text":"a\u0000b"}`),
			"in a content's name": in("content", `{"text\u0000":"b"}`),
			"deep in the content": in("content", `{"a":[{"b":["\u0000"]}]}`),
			"in the metadata":     in("metadata", `{"note":"\u0000"}`),
			"in the recipient":    in("to", `"p7@example.test\u0000"`),
			"raw in the id":       in("reminder_id", "\"rem-b07\x00x\""),
			"raw in the content":  in("content", "{\"text\":\"a\x00b\"}"),
			"raw after the end":   newReminder("rem-b07").String() + "\x00",
			"nothing but NUL":     "\x00\x00",
			"no UTF-8":            in("content", "{\"text\":\"\xff\xfe\"}"),
			"a lone surrogate":    in("content", `{"text":"\ud800"}`),
		}
		for name, body := range bodies {
			g.checkMalformed(name, body)
		}
		// Each is stored in the ledger with exactly the bytes that were received.
		kept, err := openDB(t, database).Query("select raw from payloads where type = '!malformed'")
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		found := map[string]bool{}
		for kept.Next() {
			var raw []byte
			if err := kept.Scan(&raw); err != nil {
				t.Fatal(err)
			}
			found[string(raw)] = true
		}
		if err := kept.Err(); err != nil {
			t.Fatal(err)
		}
		for name, body := range bodies {
			if !found[body] {
				t.Errorf("%s: its bytes are not stored", name)
			}
		}
		if a := g.deliver(newReminder("rem-b07-ok")); !isAck(a) || a.plainReply(t).State != "sent" || a.took > time.Second {
			t.Errorf("a valid message after that: %s in %v", a, a.took)
		}
		if c := p.counts(); c.Calls != 1 {
			t.Errorf("%d calls, want that of the valid message", c.Calls)
		}
		g.checkNotLogged("22021", "22P05", `"level":"ERROR","msg":"delivery"`)
	})
}

// issuer signs tokens as Google does for push subscriptions, under a key that it publishes.
type issuer struct {
	t      *testing.T
	url    string
	signer jose.Signer
}

// The claims in the tokens of the test subscription.
const (
	audience           = "https://gw.example.test/v1/push/stream"
	pushServiceAccount = "push@demo.example.test"
)

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	jwk := jose.JSONWebKey{Key: key, KeyID: "key-1", Algorithm: string(jose.RS256), Use: "sig"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{jwk.Public()}})
	}))
	t.Cleanup(server.Close)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jwk}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t, server.URL, signer}
}

// withSource adds a Pub/Sub source that trusts the issuer.
func (i *issuer) withSource(c config, name string) config {
	return c.with(map[string]any{
		"format": "pubsub", "answer_within": "3s",
		"auth": map[string]any{"oidc": map[string]any{
			"audience": audience, "email": pushServiceAccount, "issuer": i.url, "keys_url": i.url + "/keys",
		}},
	}, "sources", name)
}

func (i *issuer) token(email string) string {
	i.t.Helper()
	now := time.Now().Unix()
	claims, err := json.Marshal(map[string]any{
		"iss": i.url, "aud": audience, "sub": "1", "email": email, "email_verified": true, "iat": now, "exp": now + 3600,
	})
	if err != nil {
		i.t.Fatal(err)
	}
	signed, err := i.signer.Sign(claims)
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

// push delivers an envelope with the subscription's token and checks the response status.
func (i *issuer) push(g *gateway, source, envelope string, want int) {
	g.t.Helper()
	a, err := g.call(http.MethodPost, "/v1/push/"+source, i.token(pushServiceAccount), http.Header{"Content-Type": {"application/json"}}, []byte(envelope))
	if err != nil || a.status != want {
		g.t.Errorf("push of %.120s: %s, %v; want %d", envelope, a, err, want)
	}
}

// pubsubEnvelope wraps a document as Pub/Sub does.
func pubsubEnvelope(data, messageID string) string {
	return fmt.Sprintf(`{"message":{"data":%q,"messageId":%q,"publishTime":"2031-03-04T08:30:01Z","attributes":{"kind":"reminder"}},`+
		`"subscription":"projects/demo-1/subscriptions/reminders-push","deliveryAttempt":1}`,
		base64.StdEncoding.EncodeToString([]byte(data)), messageID)
}

// Bug: an empty payload means that the field "data" is absent; the consumer crashed, and the message was
// redelivered for ever.
func TestB24_MessageWithoutReadableDataIsADeadLetter(t *testing.T) {
	p := startProvider(t)
	issuer := startIssuer(t)
	g := serve(t, issuer.withSource(configure(newSQLite(t), p), "stream"))
	// The text needs the two characters in which standard and URL-safe base64 differ.
	reminder := func(id string) string {
		return newReminder(id).with("content", map[string]any{"text": "???>>>~~~ÿÿÿ???>>>"}).String()
	}
	data := func(e *base64.Encoding, id string) string { return e.EncodeToString([]byte(reminder(id))) }
	if !strings.ContainsAny(data(base64.URLEncoding, "rem-b24"), "-_") {
		t.Fatal("the two base64 alphabets do not differ for this text")
	}
	const end = `"publishTime":"2031-03-04T08:30:01Z"},"subscription":"projects/demo-1/subscriptions/reminders-push"}`

	for name, message := range map[string]string{
		"no data":               `{"message":{"attributes":{"kind":"reminder"},"messageId":"70010024",`,
		"no data, no attribute": `{"message":{"messageId":"70010025",`,
		"empty data":            `{"message":{"data":"","messageId":"70010026",`,
		"null data":             `{"message":{"data":null,"messageId":"70010027",`,
		"data that is a number": `{"message":{"data":7,"messageId":"70010028",`,
		"no base64":             `{"message":{"data":"!!!","messageId":"70010029",`,
		"URL-safe base64":       `{"message":{"data":"` + data(base64.URLEncoding, "rem-b24-url") + `","messageId":"70010030",`,
		"base64 without end":    `{"message":{"data":"` + strings.TrimRight(data(base64.StdEncoding, "rem-b24-end1"), "=") + `x","messageId":"70010031",`,
		"two message ids":       `{"message":{"data":"` + data(base64.StdEncoding, "rem-b24-ids") + `","messageId":"70010032","message_id":"70010033",`,
		"empty object":          `{"message":{"data":"e30=","messageId":"70010034",`,
	} {
		before := len(g.list(url.Values{"state": {"dead"}}))
		for attempt := range 5 {
			counted := strings.Replace(message+end, `{"message"`, fmt.Sprintf(`{"deliveryAttempt":%d,"message"`, attempt+1), 1)
			issuer.push(g, "stream", counted, http.StatusNoContent)
		}
		issuer.push(g, "stream", message+end, http.StatusNoContent) // a subscription without a counter
		dead := g.list(url.Values{"state": {"dead"}})
		if len(dead) != before+1 || dead[0].Class != "malformed" || dead[0].Channel != "stream" {
			t.Errorf("%s: from %d to %d dead letters", name, before, len(dead))
		}
	}
	if c := p.counts(); c.Calls != 0 {
		t.Errorf("%d calls", c.Calls)
	}

	issuer.push(g, "stream", `{"message":{"data":"`+data(base64.StdEncoding, "rem-b24-one")+`","messageId":"70010040",`+end, http.StatusNoContent)
	issuer.push(g, "stream", `{"message":{"data":"`+data(base64.StdEncoding, "rem-b24-two")+`","messageId":"70010041","message_id":"70010041",`+end, http.StatusNoContent)
	for _, id := range []string{"rem-b24-one", "rem-b24-two"} {
		g.waitForState(newReminder(id), "sent", time.Second)
		p.checkCalls(newReminder(id), 1, 1)
	}

	other, err := g.call(http.MethodPost, "/v1/push/stream", issuer.token("other@demo.example.test"), nil, []byte(pubsubEnvelope(reminder("rem-b24-other"), "1")))
	if err != nil || other.status != http.StatusUnauthorized {
		t.Errorf("another service account: %s, %v", other, err)
	}
	g.checkUnknown("rem-b24-other")
}

// Bug: a signature that is verified over a body that was parsed and serialised again rejects valid messages,
// or accepts forged ones.
func TestB26_SignatureIsVerifiedOverTheReceivedBytes(t *testing.T) {
	p := startProvider(t)
	secret := bytes.Repeat([]byte("k"), 32)
	g := serve(t, configure(newSQLite(t), p).with(map[string]any{
		"format": "standard-webhooks", "max_age": "7d", "answer_within": "3s",
		"auth": map[string]any{"standard_webhooks": map[string]any{"secrets": []string{"whsec_" + base64.StdEncoding.EncodeToString(secret)}}},
	}, "sources", "signed"))
	sign := func(id, body string) http.Header {
		stamp := strconv.FormatInt(time.Now().Unix(), 10)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + stamp + "." + body))
		return http.Header{
			"Webhook-Id": {id}, "Webhook-Timestamp": {stamp},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
		}
	}
	push := func(name string, header http.Header, body string, want int) {
		t.Helper()
		a, err := g.call(http.MethodPost, "/v1/push/signed", "", header, []byte(body))
		if err != nil || a.status != want {
			t.Errorf("%s: %s, %v; want %d", name, a, err, want)
		}
	}
	odd := func(id string) string {
		return "\n{ \"content\" : {\"b\":1.0 ,\"a\":\"x\\/y\", \"c\":1e0} ,\r\n\t\"to\":\"p7@example.test\" , \"channel\":\"email\"" +
			",\"type\":\"seat\\u005fexpiring\"  ,\"reminder_id\" :\"" + id + "\" } "
	}
	var minified bytes.Buffer
	if err := json.Compact(&minified, []byte(odd("rem-b26-forged"))); err != nil {
		t.Fatal(err)
	}
	forged := odd("rem-b26-forged")
	push("minified after signing", sign("msg-1", forged), minified.String(), http.StatusUnauthorized)
	push("a line break after signing", sign("msg-1", forged), forged+"\n", http.StatusUnauthorized)
	push("trimmed after signing", sign("msg-1", forged), strings.TrimSpace(forged), http.StatusUnauthorized)
	push("an escape resolved", sign("msg-1", forged), strings.Replace(forged, `\/`, `/`, 1), http.StatusUnauthorized)
	header := sign("msg-1", forged)
	header.Set("Webhook-Id", "msg-2")
	push("under another message id", header, forged, http.StatusUnauthorized)
	g.checkUnknown("rem-b26-forged")

	push("odd spacing, order, escapes and numbers", sign("msg-3", odd("rem-b26")), odd("rem-b26"), http.StatusNoContent)
	push("the same again", sign("msg-3", odd("rem-b26")), odd("rem-b26"), http.StatusNoContent)
	g.waitForState(newReminder("rem-b26"), "sent", time.Second)
	p.checkCalls(newReminder("rem-b26"), 1, 1)
	if c := p.counts(); c.Calls != 1 {
		t.Errorf("%d calls, want 1", c.Calls)
	}
}

// randomText returns n incompressible characters.
func randomText(n int) string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	text := make([]byte, n)
	for i := range text {
		text[i] = base62[mathrand.IntN(len(base62))]
	}
	return string(text)
}
