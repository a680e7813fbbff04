package webhook_test

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider/webhook"
)

const (
	secret      = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	otherSecret = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A="
	eventID     = "evt_1"
)

func eventTime() time.Time { return time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC) }

func events(t testing.TB, secrets ...string) *webhook.Events {
	t.Helper()
	e, err := webhook.NewEvents("mail", secrets, eventTime)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// signed returns the headers of an event that was signed at the given time.
func signed(t testing.TB, secret, id string, at time.Time, raw []byte) http.Header {
	t.Helper()
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := signer.Sign(id, at, raw)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", signature)
	return h
}

func identity() ledger.Identity {
	return ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
}

// event returns a complete event with the given members replaced; a member that is nil is left out.
func event(t testing.TB, members map[string]any) []byte {
	t.Helper()
	whole := map[string]any{
		"send_key": identity().SendKey(), "reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email",
		"status": "delivered", "id": "m-1", "code": "250", "at": "2031-03-04T08:59:30.25Z",
	}
	maps.Copy(whole, members)
	maps.DeleteFunc(whole, func(_ string, value any) bool { return value == nil })
	raw, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func statusEvent(kind ledger.StatusKind) ledger.StatusEvent {
	return ledger.StatusEvent{
		Identity: identity(), Kind: kind, Provider: "mail", MessageID: eventID, Receipt: "m-1", Code: "250",
		At: time.Date(2031, 3, 4, 8, 59, 30, 250e6, time.UTC),
	}
}

func TestEventsOpen_SignedEventIsStatusEvent(t *testing.T) {
	for _, kind := range ledger.StatusKinds() {
		raw := event(t, map[string]any{"status": kind})
		got, err := events(t, secret).Open(signed(t, secret, eventID, eventTime(), raw), raw)
		if diff := cmp.Diff(statusEvent(kind), got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", kind, err, diff)
		}
	}
	bare := statusEvent(ledger.StatusAccepted)
	bare.Receipt, bare.Code = "", ""
	for name, raw := range map[string][]byte{
		"absent":  event(t, map[string]any{"status": "accepted", "id": nil, "code": nil}),
		"null":    event(t, map[string]any{"status": "accepted", "id": json.RawMessage("null"), "code": json.RawMessage("null")}),
		"offset":  event(t, map[string]any{"status": "accepted", "id": nil, "code": nil, "at": "2031-03-04T10:59:30.25+02:00"}),
		"escaped": []byte(strings.Replace(string(event(t, map[string]any{"status": "accepted", "id": nil, "code": nil})), "rem-1842", `\u0072em-1842`, 1)),
	} {
		got, err := events(t, secret).Open(signed(t, secret, eventID, eventTime(), raw), raw)
		if diff := cmp.Diff(bare, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

func TestEventsOpen_UnsignedOrAlteredIsNotAuthentic(t *testing.T) {
	raw := event(t, nil)
	good := signed(t, secret, eventID, eventTime(), raw)
	with := func(pairs ...string) http.Header {
		h := good.Clone()
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	twice := good.Clone()
	twice.Add("webhook-id", eventID)
	twiceSigned := good.Clone()
	twiceSigned.Add("webhook-signature", good.Get("webhook-signature"))
	svix := http.Header{
		"Svix-Id": good["Webhook-Id"], "Svix-Timestamp": good["Webhook-Timestamp"], "Svix-Signature": good["Webhook-Signature"],
	}
	late, long := eventTime().Add(time.Second), strings.Repeat("m", 256)
	stamp := strconv.FormatInt(eventTime().Unix(), 10)
	for name, c := range map[string]struct {
		h   http.Header
		raw []byte
	}{
		"nothing":                     {http.Header{}, raw},
		"another secret's":            {signed(t, otherSecret, eventID, eventTime(), raw), raw},
		"no signature":                {with("webhook-signature", ""), raw},
		"a version alone":             {with("webhook-signature", "v1,"), raw},
		"the digest as version v1a":   {with("webhook-signature", strings.Replace(good.Get("webhook-signature"), "v1,", "v1a,", 1)), raw},
		"a signature too long":        {with("webhook-signature", good.Get("webhook-signature")+strings.Repeat(" v1,AA", 1000)), raw},
		"two signatures in two lines": {twiceSigned, raw},
		"no id":                       {with("webhook-id", ""), raw},
		"another id":                  {with("webhook-id", "evt_2"), raw},
		"two ids":                     {twice, raw},
		"an id too long":              {signed(t, secret, long, eventTime(), raw), raw},
		"an id beyond ASCII":          {signed(t, secret, "evt_é", eventTime(), raw), raw},
		"another time in the window":  {with("webhook-timestamp", strconv.FormatInt(late.Unix(), 10)), raw},
		"a time with a sign":          {with("webhook-timestamp", "+"+stamp), raw},
		"a time with a zero in front": {with("webhook-timestamp", "0"+stamp), raw},
		"no time":                     {with("webhook-timestamp", ""), raw},
		"Svix's names":                {svix, raw},
		"another body":                {good, event(t, map[string]any{"status": "accepted"})},
		"a line end behind the body":  {good, append(raw[:len(raw):len(raw)], '\n')},
		"no body":                     {good, nil},
	} {
		got, err := events(t, secret).Open(c.h, c.raw)
		if !errors.Is(err, webhook.ErrNotAuthentic) || got != (ledger.StatusEvent{}) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

func TestEventsOpen_TimestampToleranceIsFiveMinutes(t *testing.T) {
	for offset, ok := range map[time.Duration]bool{
		-301 * time.Second: false, -300 * time.Second: true, 0: true, 300 * time.Second: true, 301 * time.Second: false,
		-eventTime().Sub(time.Unix(0, 0)): false,
	} {
		raw := event(t, nil)
		_, err := events(t, secret).Open(signed(t, secret, eventID, eventTime().Add(offset), raw), raw)
		if (err == nil) != ok || !ok && !errors.Is(err, webhook.ErrNotAuthentic) {
			t.Errorf("%s from now: %v", offset, err)
		}
	}
}

func TestNewEvents_SecretsRotate(t *testing.T) {
	raw := event(t, nil)
	both := signed(t, secret, eventID, eventTime(), raw)
	both.Set("webhook-signature", "v1a,x v2,y "+signed(t, otherSecret, eventID, eventTime(), raw).Get("webhook-signature")+
		" "+both.Get("webhook-signature"))
	for name, c := range map[string]struct {
		h       http.Header
		secrets []string
	}{
		"the new one first": {signed(t, secret, eventID, eventTime(), raw), []string{otherSecret, secret}},
		"the new one last":  {signed(t, secret, eventID, eventTime(), raw), []string{secret, otherSecret}},
		"signed with both":  {both, []string{secret}},
		"no prefix":         {signed(t, secret, eventID, eventTime(), raw), []string{strings.TrimPrefix(secret, "whsec_")}},
	} {
		if _, err := events(t, c.secrets...).Open(c.h, raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, secrets := range map[string][]string{
		"none": nil, "an empty one": {""}, "a prefix alone": {"whsec_"}, "an empty one of two": {secret, ""},
		"23 bytes": {"whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhc="}, "no base64": {"whsec_canary-canary-canary-canary-canary"},
	} {
		e, err := webhook.NewEvents("mail", secrets, nil)
		if err == nil || e != nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
}

func TestEventsOpen_UnreadableEventReportsFault(t *testing.T) {
	raw := string(event(t, nil))
	of := func(members map[string]any) string { return string(event(t, members)) }
	other := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "sms"}
	for name, c := range map[string]struct{ raw, fault string }{
		"nothing":                 {"", "JSON object"},
		"null":                    {"null", "JSON object"},
		"a list":                  {"[" + raw + "]", "JSON object"},
		"a string":                {`"x"`, "JSON object"},
		"cut":                     {raw[:len(raw)-1], "JSON object"},
		"two":                     {raw + raw, "JSON object"},
		"a byte order mark":       {"\ufeff" + raw, "JSON object"},
		"bad UTF-8":               {strings.Replace(raw, "m-1", "m-\xff", 1), "valid UTF-8"},
		"a lone surrogate":        {strings.Replace(raw, "m-1", `m-\ud800`, 1), "valid UTF-8"},
		"NUL":                     {strings.Replace(raw, "m-1", `m-\u0000`, 1), "id: must be 1 to 255"},
		"a name twice":            {strings.Replace(raw, "{", `{"status":"bounced",`, 1), "duplicate name"},
		"a name twice, escaped":   {strings.Replace(raw, "{", `{"\u0073tatus":"bounced",`, 1), "duplicate name"},
		"too long":                {raw + strings.Repeat(" ", webhook.MaxEvent), "16384 bytes"},
		"an unknown member":       {of(map[string]any{"to": "ada@example.org"}), "to: is not a member"},
		"another case":            {of(map[string]any{"Status": "accepted"}), "Status: is not a member"},
		"deep":                    {strings.Replace(raw, "{", `{"x":`+strings.Repeat("[", 3000)+strings.Repeat("]", 3000)+",", 1), "x: is not a member"},
		"no key":                  {of(map[string]any{"send_key": nil}), "send_key: is required"},
		"no reminder":             {of(map[string]any{"reminder_id": nil}), "reminder_id: is required"},
		"no type":                 {of(map[string]any{"type": nil}), "type: is required"},
		"no channel":              {of(map[string]any{"channel": nil}), "channel: is required"},
		"no status":               {of(map[string]any{"status": nil}), "status: is required"},
		"no time":                 {of(map[string]any{"at": nil}), "at: is required"},
		"a status that is null":   {of(map[string]any{"status": json.RawMessage("null")}), "status: is required"},
		"another's key":           {of(map[string]any{"send_key": other.SendKey()}), "send_key: is not the send key"},
		"another's channel":       {of(map[string]any{"channel": "sms"}), "send_key: is not the send key"},
		"a key in capitals":       {of(map[string]any{"send_key": strings.ToUpper(identity().SendKey())}), "send_key: is not the send key"},
		"an unknown status":       {of(map[string]any{"status": "opened"}), "status: must be accepted, delivered"},
		"a status in capitals":    {of(map[string]any{"status": "Delivered"}), "status: must be accepted, delivered"},
		"a status that is a list": {of(map[string]any{"status": []string{"delivered"}}), "status: must be a string"},
		"an id that is a number":  {of(map[string]any{"id": 17}), "id: must be a string"},
		"an empty id":             {of(map[string]any{"id": ""}), "id: must be 1 to 255"},
		"an id too long":          {of(map[string]any{"id": strings.Repeat("m", 256)}), "id: must be 1 to 255"},
		"an id beyond ASCII":      {of(map[string]any{"id": "é"}), "id: must be 1 to 255"},
		"a code too long":         {of(map[string]any{"code": strings.Repeat("c", 129)}), "code: must be 1 to 128"},
		"a code with a line end":  {of(map[string]any{"code": "a\nb"}), "code: must be 1 to 128"},
		"a reminder too long":     {of(map[string]any{"reminder_id": strings.Repeat("r", 256)}), "reminder_id: must be 1 to 255"},
		"a reminder with a space": {of(map[string]any{"reminder_id": "rem 1842"}), "reminder_id: must be 1 to 255"},
		"a quarantined type":      {of(map[string]any{"type": "!malformed"}), "type: must be 1 to 64"},
		"an invalid channel":      {of(map[string]any{"channel": "E-Mail"}), "channel: must be 1 to 64"},
		"a time that is a number": {of(map[string]any{"at": 1930467600}), "at: must be a string"},
		"no RFC 3339 time":        {of(map[string]any{"at": "yesterday"}), "at: must be an RFC 3339"},
		"a time without an hour":  {of(map[string]any{"at": "2031-03-04"}), "at: must be an RFC 3339"},
		"a time before 2000":      {of(map[string]any{"at": "1999-12-31T23:59:59Z"}), "at: must be an RFC 3339"},
		"a time in the future":    {of(map[string]any{"at": "2031-03-04T09:05:01Z"}), "at: must be an RFC 3339"},
	} {
		got, err := events(t, secret).Open(signed(t, secret, eventID, eventTime(), []byte(c.raw)), []byte(c.raw))
		var faults webhook.Faults
		switch {
		case !errors.As(err, &faults) || errors.Is(err, webhook.ErrNotAuthentic) || got != (ledger.StatusEvent{}):
			t.Errorf("%s: %v, %+v", name, err, got)
		case len(faults) != 1 || !strings.Contains(err.Error(), c.fault):
			t.Errorf("%s: got %q, want one fault with %q", name, err, c.fault)
		case strings.Contains(err.Error(), "ada@"):
			t.Errorf("%s: the fault contains the value: %v", name, err)
		}
	}
}

func TestEventsOpen_FaultsAreOrderedAndLimited(t *testing.T) {
	raw := event(t, map[string]any{"status": "opened", "id": 1, "at": nil, "type": "X", "send_key": "0"})
	_, err := events(t, secret).Open(signed(t, secret, eventID, eventTime(), raw), raw)
	var faults webhook.Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var fields []string
	for _, f := range faults {
		fields = append(fields, f.Field)
	}
	if diff := cmp.Diff([]string{"at", "id", "status", "type"}, fields); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	many := map[string]any{}
	for i := range 100 {
		many["x"+strconv.Itoa(i)] = i
	}
	raw = event(t, many)
	if _, err = events(t, secret).Open(signed(t, secret, eventID, eventTime(), raw), raw); !errors.As(err, &faults) || len(faults) != 32 {
		t.Errorf("%d faults", len(faults))
	}
}

func FuzzEventsOpen_ReadsExactlyOrRejects(f *testing.F) {
	whole := event(f, nil)
	f.Add(whole)
	f.Add(event(f, map[string]any{"status": "accepted", "id": nil, "code": json.RawMessage("null")}))
	f.Add([]byte(strings.Replace(string(whole), "{", `{"status":"bounced",`, 1)))
	f.Add([]byte(`{"send_key":"\ud800","at":"2031-03-04T09:00:00.1,Z"}`))
	e := events(f, secret)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := e.Open(signed(t, secret, eventID, eventTime(), raw), raw)
		if err != nil {
			var faults webhook.Faults
			if !errors.As(err, &faults) || len(faults) == 0 || got != (ledger.StatusEvent{}) {
				t.Errorf("%v, %+v", err, got)
			}
			return
		}
		// Another JSON decoder reads the same event.
		var seen map[string]*string
		if err := json.Unmarshal(raw, &seen); err != nil {
			t.Fatal(err)
		}
		of := func(name string) string {
			if value := seen[name]; value != nil {
				return *value
			}
			return ""
		}
		at, err := time.Parse(time.RFC3339, of("at"))
		if err != nil || of("send_key") != got.SendKey() {
			t.Errorf("at %v, key %q of %+v", err, of("send_key"), got)
		}
		want := ledger.StatusEvent{
			Identity: ledger.Identity{ReminderID: of("reminder_id"), Type: of("type"), Channel: of("channel")},
			Kind:     ledger.StatusKind(of("status")), Provider: "mail", MessageID: eventID,
			Receipt: of("id"), Code: of("code"), At: at.UTC(),
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

func FuzzEventsOpen_UnsignedIsNotAuthentic(f *testing.F) {
	raw := event(f, nil)
	good := signed(f, secret, eventID, eventTime(), raw)
	stamp, signature := good.Get("webhook-timestamp"), good.Get("webhook-signature")
	f.Add(eventID, stamp, signature, raw)
	f.Add("", "9", " , v1,, v1", []byte("\x00"))
	f.Add(eventID, "-"+stamp, signature+" "+signature, raw)
	e := events(f, secret)
	f.Fuzz(func(t *testing.T, id, at, list string, body []byte) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {list}}
		_, err := e.Open(h, body)
		signed := id == eventID && at == stamp && string(body) == string(raw) && strings.Contains(list, signature)
		if !signed && !errors.Is(err, webhook.ErrNotAuthentic) {
			t.Errorf("accepted: %v", err)
		}
	})
}
