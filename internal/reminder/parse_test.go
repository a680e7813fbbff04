package reminder_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/reminder"
)

const complete = `{"reminder_id": "rem-1842", "reservation_id": "seat-1842", "type": "seat_expiring", "channel": "email",
 "user_id": "u-77", "to": "ada@example.org",
 "content": {"subject": "Your seat is about to expire", "text": "It is held until 09:10.", "html": "<p>…</p>"},
 "created_at": "2031-03-04T08:55:00Z", "not_before": "2031-03-04T10:00:00.5+01:00", "deadline": "2031-03-04T09:10:00Z",
 "correlation_id": "req-5f", "metadata": {"course": "algebra-1"}}`

func TestParse_EveryField(t *testing.T) {
	got, err := reminder.Parse([]byte(complete))
	if err != nil {
		t.Fatal(err)
	}
	want := reminder.Reminder{
		ReminderID: "rem-1842", ReservationID: "seat-1842", Type: "seat_expiring", Channel: "email",
		UserID: "u-77", To: "ada@example.org", CorrelationID: "req-5f",
		Content:   []byte(`{"subject": "Your seat is about to expire", "text": "It is held until 09:10.", "html": "<p>…</p>"}`),
		Metadata:  []byte(`{"course": "algebra-1"}`),
		CreatedAt: time.Date(2031, 3, 4, 8, 55, 0, 0, time.UTC),
		NotBefore: time.Date(2031, 3, 4, 9, 0, 0, 5e8, time.UTC),
		Deadline:  time.Date(2031, 3, 4, 9, 10, 0, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.NotBefore.Location() != time.UTC {
		t.Errorf("not_before is in %v, want UTC", got.NotBefore.Location())
	}
}

func TestParse_DoesNotRetainItsInput(t *testing.T) {
	raw := []byte(complete)
	got, err := reminder.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	hash := got.ContentHash()
	clear(raw)
	if got.ContentHash() != hash || got.To != "ada@example.org" {
		t.Error("the reminder changed with the buffer that it was parsed from")
	}
}

// document returns a valid reminder with members replaced or added; a member whose JSON is "" is left out.
func document(pairs ...string) string {
	names := []string{"reminder_id", "type", "channel", "to", "content"}
	members := map[string]string{
		"reminder_id": `"rem-1"`, "type": `"seat_expiring"`, "channel": `"email"`, "to": `"p7@example.test"`,
		"content": `{"text":"hi"}`,
	}
	for i := 0; i < len(pairs); i += 2 {
		if _, known := members[pairs[i]]; !known {
			names = append(names, pairs[i])
		}
		members[pairs[i]] = pairs[i+1]
	}
	var parts []string
	for _, name := range names {
		if members[name] != "" {
			parts = append(parts, fmt.Sprintf("%q:%s", name, members[name]))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func quoted(n int, letter string) string { return `"` + strings.Repeat(letter, n) + `"` }

func objectOf(n int, pair string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(pair, i)
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestParse_AcceptsWhatIsAllowed(t *testing.T) {
	for name, raw := range map[string]string{
		"the minimum":                    document(),
		"spacing around":                 " \t\r\n" + document() + " \t\r\n",
		"an escaped name":                strings.Replace(document(), "reminder_id", `reminder\u005fid`, 1),
		"an id of 1":                     document("reminder_id", quoted(1, "x")),
		"an id of 255":                   document("reminder_id", quoted(255, "x")),
		"an id of delimiters":            document("reminder_id", `"a:b|c/d_e%3A!~'"`),
		"an id that is upper case":       document("reminder_id", `"REM"`),
		"a type of 64":                   document("type", quoted(64, "a")),
		"a type with all its signs":      document("type", `"a0_.-"`),
		"a user with a space":            document("user_id", `"u 77"`),
		"a recipient of 1024 bytes":      document("to", quoted(1024, "x")),
		"a recipient in letters":         document("to", `"Ådá Łovelace, Straße 1"`),
		"content 16 deep":                document("content", strings.Repeat(`{"a":`, 15)+"1"+strings.Repeat("}", 15)),
		"content with a number too far":  document("content", `{"n":1e400}`),
		"content with an odd name":       document("content", `{"__proto__":{"x":1},"":2}`),
		"content with a surrogate pair":  document("content", `{"a":"\ud83d\ude00"}`),
		"content with a null":            document("content", `{"a":null}`),
		"content spread over lines":      document("content", "{\n\"a\":1}"),
		"metadata of 32":                 document("metadata", objectOf(32, `"k%d":"v"`)),
		"metadata with the longest name": document("metadata", `{`+quoted(64, "k")+`:"v"}`),
		"metadata with a long value":     document("metadata", `{"k":`+quoted(512, "v")+`}`),
		"empty metadata":                 document("metadata", `{}`),
		"nulls for what may be absent":   document("reservation_id", "null", "user_id", "null", "metadata", "null", "deadline", "null"),
		"the first year":                 document("created_at", `"2000-01-01T00:00:00Z"`),
		"the last year":                  document("deadline", `"9999-12-31T23:59:59.999999Z"`),
	} {
		if _, err := reminder.Parse([]byte(raw)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParse_ReservationIDReplacesAMissingReminderID(t *testing.T) {
	got, err := reminder.Parse([]byte(document("reminder_id", "", "reservation_id", `"seat-9"`)))
	if err != nil {
		t.Fatal(err)
	}
	if got.ReminderID != "seat-9" || got.ReservationID != "seat-9" {
		t.Errorf("ids are %q and %q, want seat-9 twice", got.ReminderID, got.ReservationID)
	}
}

func TestInstant_LowerCaseAndLeapSecondsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"2026-12-01t00:48:36z":      "2026-12-01T00:48:36Z",
		"2026-12-01T00:48:36z":      "2026-12-01T00:48:36Z",
		"2026-12-01t01:48:36+01:00": "2026-12-01T00:48:36Z",
		"2026-12-01t00:48:36.25z":   "2026-12-01T00:48:36.25Z",
		"2016-12-31T23:59:60Z":      "2017-01-01T00:00:00Z",
		"2016-12-31t23:59:60.5z":    "2017-01-01T00:00:00.5Z",
		"2017-01-01T00:59:60+01:00": "2017-01-01T00:00:00Z",
		"2016-12-31T15:59:60-08:00": "2017-01-01T00:00:00Z",
		"2016-12-31T23:59:59z":      "2016-12-31T23:59:59Z",
	} {
		if got, err := reminder.Instant(text); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %s, %v", text, got.Format(time.RFC3339Nano), err)
		}
		if _, err := reminder.Parse([]byte(document("created_at", `"`+text+`"`))); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParse_ReportsEachFaultByItsField(t *testing.T) {
	const (
		required = "is required"
		text     = "must be a string"
		id       = "must be 1 to 255 printable ASCII characters without space"
		segment  = "must not be '.' or '..', which no URL can hold as one segment of its path"
		line     = "must be 1 to 255 printable ASCII characters"
		word     = "must be 1 to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter"
		to       = "must be 1 to 1024 bytes without control characters"
		instant  = "must be an RFC 3339 time, such as 2031-03-04T09:00:00Z"
		era      = "must lie in the years 2000 to 9999"
		object   = "must be a JSON object"
		unknown  = "is not a member of a reminder; names are case-sensitive"
	)
	for name, c := range map[string]struct {
		raw            string
		field, problem string
	}{
		"no id at all":                  {document("reminder_id", ""), "reminder_id", "is required unless reservation_id is given"},
		"null id":                       {document("reminder_id", "null", "reservation_id", `"seat-1"`), "reminder_id", text},
		"number for an id":              {document("reminder_id", "9007199254740993"), "reminder_id", text},
		"empty id":                      {document("reminder_id", `""`, "reservation_id", `"seat-1"`), "reminder_id", id},
		"id of 256":                     {document("reminder_id", quoted(256, "x")), "reminder_id", id},
		"id of 3000":                    {document("reminder_id", quoted(3000, "k")), "reminder_id", id},
		"id of 200000":                  {document("reminder_id", quoted(200000, "k")), "reminder_id", id},
		"id with a space":               {document("reminder_id", `"a b"`), "reminder_id", id},
		"id with a line feed":           {document("reminder_id", `"a\nb"`), "reminder_id", id},
		"id with DEL":                   {document("reminder_id", `"a\u007f"`), "reminder_id", id},
		"id beyond ASCII":               {document("reminder_id", `"ré"`), "reminder_id", id},
		"an id of one dot":              {document("reminder_id", `"."`), "reminder_id", segment},
		"an id of two dots":             {document("reminder_id", `"\u002e."`), "reminder_id", segment},
		"a reservation of one dot":      {document("reservation_id", `"."`), "reservation_id", segment},
		"a reservation of two dots":     {document("reservation_id", `".."`), "reservation_id", segment},
		"reservation with a space":      {document("reservation_id", `" "`), "reservation_id", id},
		"no type":                       {document("type", ""), "type", required},
		"null type":                     {document("type", "null"), "type", required},
		"type as an array":              {document("type", `["a"]`), "type", text},
		"type in upper case":            {document("type", `"Seat"`), "type", word},
		"type with a line end":          {document("type", `"seat\n"`), "type", word},
		"type of 65":                    {document("type", quoted(65, "a")), "type", word},
		"the type of malformed entries": {document("type", `"!malformed"`), "type", word},
		"channel from a digit":          {document("channel", `"1mail"`), "channel", word},
		"no recipient":                  {document("to", ""), "to", required},
		"recipient as an object":        {document("to", `{"a":1}`), "to", text},
		"empty recipient":               {document("to", `""`), "to", to},
		"recipient of 1025":             {document("to", quoted(1025, "x")), "to", to},
		"recipient with a header":       {document("to", `"a@example.test\r\nBcc: x@example.test"`), "to", to},
		"recipient with C1":             {document("to", `"a\u0085b"`), "to", to},
		"user of 256":                   {document("user_id", quoted(256, "u")), "user_id", line},
		"empty user":                    {document("user_id", `""`), "user_id", line},
		"correlation with a tab":        {document("correlation_id", `"a\tb"`), "correlation_id", line},
		"no content":                    {document("content", ""), "content", required},
		"null content":                  {document("content", "null"), "content", required},
		"content as a string":           {document("content", `"hi"`), "content", object},
		"content as an array":           {document("content", `[1]`), "content", object},
		"empty content":                 {document("content", "{ \n }"), "content", "must have at least one member"},
		"metadata as an array":          {document("metadata", `[]`), "metadata", object},
		"metadata of a number":          {document("metadata", `{"course":1}`), "metadata.course", text},
		"metadata of null":              {document("metadata", `{"course":null}`), "metadata.course", text},
		"metadata of 33":                {document("metadata", objectOf(33, `"k%d":"v"`)), "metadata", "must have at most 32 members"},
		"metadata name too long":        {document("metadata", `{`+quoted(65, "k")+`:"v"}`), "metadata." + quoted(64, "k"), "must have a name of 1 to 64 bytes without control characters"},
		"metadata name empty":           {document("metadata", `{"":"v"}`), `metadata.""`, "must have a name of 1 to 64 bytes without control characters"},
		"metadata name with ESC":        {document("metadata", `{"\u001b[2J":"v"}`), `metadata."\x1b[2J"`, "must have a name of 1 to 64 bytes without control characters"},
		"metadata value too long":       {document("metadata", `{"a]b":`+quoted(513, "v")+`}`), "metadata.a]b", "must be at most 512 bytes"},
		"time as a number":              {document("created_at", "1900000000"), "created_at", instant},
		"time without a zone":           {document("created_at", `"2031-03-04T09:00:00"`), "created_at", instant},
		"time with a lone digit":        {document("created_at", `"2031-03-04T9:00:00Z"`), "created_at", instant},
		"time with a comma":             {document("created_at", `"2031-03-04T09:00:00,5Z"`), "created_at", instant},
		"time with a space":             {document("created_at", `"2031-03-04 09:00:00Z"`), "created_at", instant},
		"a leap second at noon":         {document("created_at", `"2031-03-04T12:00:60Z"`), "created_at", instant},
		"a leap second but not in UTC":  {document("created_at", `"2031-12-31T23:59:60+01:00"`), "created_at", instant},
		"second 61":                     {document("created_at", `"2031-12-31T23:59:61Z"`), "created_at", instant},
		"the year 1999":                 {document("not_before", `"1999-12-31T23:59:59Z"`), "not_before", era},
		"1999 in UTC":                   {document("not_before", `"2000-01-01T00:30:00+01:00"`), "not_before", era},
		"10000 in UTC":                  {document("deadline", `"9999-12-31T23:30:00-01:00"`), "deadline", era},
		"deadline at not_before":        {document("not_before", `"2031-03-04T09:00:00Z"`, "deadline", `"2031-03-04T10:00:00+01:00"`), "deadline", "must be later than not_before"},
		"an unknown member":             {document("occurrence", `"2031"`), "occurrence", unknown},
		"an id in another case":         {document("Reminder_ID", `"rem-evil"`), "Reminder_ID", unknown},
		"a recipient in upper":          {document("TO", `"evil@example.test"`), "TO", unknown},
		"a long s":                      {document("re\u017fervation_id", `"x"`), `"re\u017fervation_id"`, unknown},
		"a Kelvin sign":                 {`{"\u212aind":1,` + document()[1:], `"\u212aind"`, unknown},
		"a prototype":                   {document("__proto__", `{"to":"evil"}`), "__proto__", unknown},
	} {
		_, err := reminder.Parse([]byte(c.raw))
		want := reminder.Faults{{Field: c.field, Problem: c.problem}}
		var got reminder.Faults
		errors.As(err, &got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestParse_ReportsASyntaxFaultAlone(t *testing.T) {
	for name, c := range map[string]struct {
		raw   string
		fault reminder.Fault
	}{
		"nothing":            {"", reminder.Fault{Problem: "must be one JSON object"}},
		"spaces":             {" \n", reminder.Fault{Problem: "must be one JSON object"}},
		"an array":           {"[" + document() + "]", reminder.Fault{Problem: "must be one JSON object"}},
		"null":               {"null", reminder.Fault{Problem: "must be one JSON object"}},
		"binary":             {"\x00\x01\xff", reminder.Fault{Problem: "must be one JSON object"}},
		"a byte order mark":  {"\ufeff" + document(), reminder.Fault{Problem: "starts with a byte order mark; RFC 8259 section 8.1 allows none"}},
		"half":               {document()[:20], reminder.Fault{Problem: "ends before the object is closed"}},
		"a second document":  {document() + " {}", reminder.Fault{Problem: "continues after its end, at byte 112"}},
		"a stray brace":      {document() + "}", reminder.Fault{Problem: "continues after its end, at byte 111"}},
		"a NUL behind":       {document() + "\x00", reminder.Fault{Problem: "continues after its end, at byte 111"}},
		"the id twice":       {document("reminder_id", `"a","reminder_id":"b"`), reminder.Fault{Field: "reminder_id", Problem: "occurs twice in one object"}},
		"the id escaped":     {document("reminder_id", `"a","reminder\u005fid":"b"`), reminder.Fault{Field: "reminder_id", Problem: "occurs twice in one object"}},
		"twice deep inside":  {document("content", `{"a":[{"b":{"c":1,"c":2}}]}`), reminder.Fault{Field: "content.a", Problem: "occurs twice in one object"}},
		"NUL in the id":      {document("reminder_id", `"rem-b07\u0000x"`), reminder.Fault{Field: "reminder_id", Problem: "contains the character U+0000, which cannot be stored"}},
		"NUL in content":     {document("content", `{"vars":{"note":"a\u0000"}}`), reminder.Fault{Field: "content.vars", Problem: "contains the character U+0000, which cannot be stored"}},
		"NUL in a name":      {document("content", `{"a\u0000":1}`), reminder.Fault{Field: `content."a\x00"`, Problem: "contains the character U+0000, which cannot be stored"}},
		"NUL in metadata":    {document("metadata", `{"k":"\u0000"}`), reminder.Fault{Field: "metadata.k", Problem: "contains the character U+0000, which cannot be stored"}},
		"invalid UTF-8":      {document("to", "\"a\xff\""), reminder.Fault{Field: "to", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 71"}},
		"a surrogate half":   {document("content", "{\"a\":\"\xed\xa0\x80\"}"), reminder.Fault{Field: "content.a", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 103"}},
		"a lone surrogate":   {document("to", `"a\ud800"`), reminder.Fault{Field: "to", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 71"}},
		"a comment":          {document("to", `/* x */ "a"`), reminder.Fault{Field: "to", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 69"}},
		"a leading zero":     {document("content", `{"n":01}`), reminder.Fault{Field: "content", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 103"}},
		"17 deep":            {document("content", strings.Repeat(`{"a":`, 16)+"1"+strings.Repeat("}", 16)), reminder.Fault{Field: "content.a", Problem: "is nested deeper than 16 levels"}},
		"10000 deep":         {document("content", strings.Repeat(`[`, 10000)), reminder.Fault{Field: "content.0", Problem: "is nested deeper than 16 levels"}},
		"100000 names":       {document("content", objectOf(100_000, `"k%d":1`)), reminder.Fault{Problem: "holds more than 20000 names and values"}},
		"100000 at the top":  {objectOf(100_000, `"k%d":1`), reminder.Fault{Problem: "holds more than 20000 names and values"}},
		"a raw control char": {document("to", "\"a\nb\""), reminder.Fault{Field: "to", Problem: "is not JSON in valid UTF-8 without lone surrogates, at byte 71"}},
	} {
		_, err := reminder.Parse([]byte(c.raw))
		var got reminder.Faults
		errors.As(err, &got)
		if diff := cmp.Diff(reminder.Faults{c.fault}, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestParse_ReportsAllFieldFaultsAtOnce(t *testing.T) {
	_, err := reminder.Parse([]byte(`{"type":7,"channel":"E","to":"secret-\u0001-recipient","metadata":{"a":1},"who":2}`))
	want := `channel: must be 1 to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter; content: is required; ` +
		`metadata.a: must be a string; reminder_id: is required unless reservation_id is given; ` +
		`to: must be 1 to 1024 bytes without control characters; type: must be a string; ` +
		`who: is not a member of a reminder; names are case-sensitive`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestParse_FaultsAreBoundedAndQuoteNoValue(t *testing.T) {
	const canary = "canary-7f3a"
	raws := []string{
		objectOf(5000, `"unknown-%d":"`+canary+`"`),
		document("to", `"`+canary+`\u0007"`, "user_id", `"`+canary+`é"`, "deadline", `"`+canary+`"`),
		document("to", `"`+canary+`\ud800"`),
		document("content", `{"a":`+canary+`}`),
		document("content", `"`+canary+`"`, "metadata", `{"a":"`+canary+strings.Repeat("x", 600)+`"}`),
		document(strings.Repeat("n", 100_000), "1"),
	}
	for _, raw := range raws {
		_, err := reminder.Parse([]byte(raw))
		if err == nil {
			t.Errorf("%.60s… was parsed", raw)
			continue
		}
		if text := err.Error(); strings.Contains(text, canary) || len(text) > 4096 {
			t.Errorf("%.60s…: the fault has %d bytes or quotes the value: %.200s", raw, len(text), text)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, raw := range []string{
		complete, document(), document("content", `{"n":1e400,"m":9007199254740993,"z":-0,"s":"\u0041\/"}`),
		document("metadata", `{"a":"\u00e9"}`), document("reminder_id", "", "reservation_id", `"s"`), "\ufeff{}", `{"a":1}{`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		first, err := reminder.Parse(raw)
		if err != nil {
			var faults reminder.Faults
			if !errors.As(err, &faults) || len(faults) == 0 || len(faults) > 32 {
				t.Fatalf("the error is not a bounded list of faults: %v", err)
			}
			return
		}
		spaced := jsontext.Value(raw).Clone()
		if err := spaced.Indent(jsontext.WithIndent("\t"), jsontext.SpaceAfterComma(true)); err != nil {
			t.Fatalf("the parsed document is not JSON: %v", err)
		}
		second, err := reminder.Parse(spaced)
		if err != nil {
			t.Fatalf("with other spacing: %v", err)
		}
		if first.ContentHash() != second.ContentHash() {
			t.Error("the hash depends on spacing")
		}
		for _, bytes := range []*[]byte{&first.Content, &second.Content, &first.Metadata, &second.Metadata} {
			if *bytes != nil && (*jsontext.Value)(bytes).Compact() != nil {
				t.Fatalf("%q is not JSON", *bytes)
			}
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Error(diff)
		}
	})
}
