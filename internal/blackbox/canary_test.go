package blackbox

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// canaries are words that stand in one place each of a reminder, and nowhere else.
type canaries struct{ address, name, text, note, user, seat string }

func flock() canaries {
	word := func(kind string) string { return kind + "-canary-" + strings.ToLower(rand.Text()) }
	return canaries{word("address"), word("name"), word("text"), word("note"), word("user"), word("seat")}
}

// said is what no log and no answer may show but an operator's look at one entry.
func (c canaries) said() []string { return []string{c.address, c.name, c.text, c.note} }

// person is all of it that an erasure takes.
func (c canaries) person() []string { return append(c.said(), c.user) }

func (c canaries) remind(id string) document {
	channel, own := map[string]string{"rem-moved": "moved", "rem-later": "later"}[id]
	if !own {
		channel = "email"
	}
	return document{
		"reminder_id": id, "reservation_id": c.seat, "type": "seat_expiring", "channel": channel, "user_id": c.user,
		"to": c.address + "@example.test", "metadata": map[string]any{"note": c.note},
		"content": map[string]any{"subject": "Dear " + c.name, "text": c.text},
	}
}

// parrot is a provider whose every answer says all that it was told, in the way that a reminder's id asks for.
type parrot struct {
	*provider
	mended atomic.Bool // the addresses that were gone are back
}

func startParrot(t *testing.T) *parrot {
	t.Helper()
	p := &parrot{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.provider = &provider{t: t, address: server.Listener.Addr().String()}
	return p
}

func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var m struct {
		ReminderID string `json:"reminder_id"`
	}
	if err != nil || json.Unmarshal(raw, &m) != nil {
		return
	}
	echo := document{"id": "receipt-1", "code": "rejected", "message": string(raw), "request": json.RawMessage(raw)}.String()
	w.Header().Set("X-Echo", string(raw))
	w.Header().Set("Content-Type", "application/json")
	status := map[string]int{
		"rem-refused": http.StatusUnprocessableEntity, "rem-gone": http.StatusGone, "rem-broken": http.StatusInternalServerError,
		"rem-moved": http.StatusFound, "rem-later": http.StatusTooManyRequests,
	}[m.ReminderID]
	switch {
	case m.ReminderID == "rem-garbled": // which Go's client quotes in its error
		hangUpWith(w, raw)
		return
	case status == 0, status == http.StatusGone && p.mended.Load():
		status = http.StatusOK
	case status == http.StatusFound:
		w.Header().Set("Location", "http://127.0.0.1:1/?said="+url.QueryEscape(string(raw)))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, echo)
}

func hangUpWith(w http.ResponseWriter, words []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write(words)
	_ = conn.Close()
}

// aviary is a gateway that is watched from all sides.
type aviary struct {
	*gateway
	t      *testing.T
	p      *parrot
	otlp   map[string]*journal // what came over OTLP, by path
	person canaries            // whom the reminders are for
	lost   canaries            // who stands in what nobody can read
	tokens map[string]string   // by who
	ids    map[string]string   // an entry's id, by that of its reminder
	said   []string            // every answer that may show nothing, with who asked what
	shown  map[string]answer   // an operator's looks at one entry, by path
}

func newAviary(t *testing.T, database string) *aviary {
	t.Helper()
	a := &aviary{
		t: t, p: startParrot(t), otlp: map[string]*journal{"/v1/traces": {}, "/v1/metrics": {}}, person: flock(), lost: flock(),
		tokens: map[string]string{}, ids: map[string]string{}, shown: map[string]answer{},
	}
	for _, who := range []string{"queue", "producer", "support", "operator", "admin"} {
		a.tokens[who] = who + "-token-canary-" + strings.ToLower(rand.Text())
	}
	caller := func(role string) map[string]any {
		own := map[string]string{"producer": producer, "support": supporter, "operator": operator, "admin": administrator}[role]
		return map[string]any{"name": role + "s", "role": role, "tokens": []string{a.tokens[role], own}}
	}
	c := configure(database, a.p.provider).with(blind(), "providers", "mail", "contract").
		with(map[string]any{"secrets": []string{eventsSecret}}, "providers", "mail", "events").
		with(map[string]any{"level": "debug"}, "log").
		with([]string{a.tokens["queue"]}, "sources", "queue", "auth", "bearer", "tokens").
		with([]any{caller("producer"), caller("support"), caller("operator"), caller("admin")}, "callers").
		lane("moved", a.p.url(), "2s", blind()).lane("later", a.p.url(), "2s", blind())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(a.otlp[r.URL.Path], r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	cmd := exec.Command(binary, "serve", "-config", c.file(t))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_METRIC_EXPORT_INTERVAL=500")
	var err error
	if a.gateway, err = spawn(t, cmd); err == nil {
		err = a.listens()
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask calls as somebody, and keeps the answer among those that may show nothing.
func (a *aviary) ask(who, method, path, body string) answer {
	a.t.Helper()
	got, err := a.call(method, path, a.tokens[who], http.Header{"Content-Type": {"application/json"}}, []byte(body))
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	a.heard(who+", "+method, got)
	return got
}

func (a *aviary) heard(whom string, got answer) {
	a.said = append(a.said, fmt.Sprintf("%s: %s %v", whom, got, got.header))
}

func (a *aviary) bring(d document) answer {
	a.t.Helper()
	return a.ask("queue", http.MethodPost, "/v1/push/queue", d.String())
}

// looks is everything that a role may read, and some that it may not.
func (a *aviary) looks(who string) {
	a.t.Helper()
	c := a.person
	for _, path := range []string{
		"/v1/reminders/rem-taken", "/v1/reminders/rem-gone", "/v1/reminders/" + c.name, "/v1/admin/entries?limit=200",
		"/v1/admin/entries?limit=" + c.address, "/v1/admin/entries?state=" + c.address, "/v1/admin/entries?cursor=" + c.text,
		"/v1/admin/entries?from=" + c.note, "/v1/admin/entries?conflict=true", "/v1/admin/dead-letters?limit=200",
		"/v1/admin/dead-letters?class=" + c.name, "/v1/admin/dead-letters/groups", "/v1/admin/reconciliation?limit=50",
		"/v1/admin/redrives", "/v1/admin/audit?limit=200", "/v1/admin/audit?by=" + c.address, "/v1/admin/providers",
	} {
		a.ask(who, http.MethodGet, path, "")
	}
	for _, id := range a.ids {
		for _, path := range []string{"/v1/admin/entries/" + id, "/v1/admin/dead-letters/" + id} {
			got := a.ask(who, http.MethodGet, path, "")
			if who == "operator" || who == "admin" {
				a.said = a.said[:len(a.said)-1]
				a.shown[path] = got
			}
		}
	}
}

// silent checks that a text shows none of the words.
func silent(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if i := strings.Index(text, word); i >= 0 {
			t.Errorf("%s shows %s: …%s…", where, word, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

func TestCanariesAreHeardNowhere(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		database := embedded(t)
		sing(t, newAviary(t, database), database, nil, func(a *aviary, during func(document)) {
			db := rows(t, database)
			db.SetMaxOpenConns(1)
			mustExec(t, db, `BEGIN IMMEDIATE`)
			during(a.person.remind("rem-away"))
			mustExec(t, db, `ROLLBACK`)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		d := private(t)
		password := "password-canary-" + strings.ToLower(rand.Text())
		database := strings.Replace(d.url(), "postgres@", "postgres:"+password+"@", 1)
		for _, wrong := range []string{ // nobody is there, and nobody is known there
			strings.Replace(database, d.relay.Addr().String(), "127.0.0.1:1", 1), strings.Replace(database, "//postgres:", "//stranger:", 1),
		} {
			out, code := run(t, nil, "migrate", "-config", configure(wrong, &provider{address: "127.0.0.1:1"}).file(t))
			if code == 0 || !strings.Contains(out, "migrate") {
				t.Errorf("migrate ended with %d: %s", code, out)
			}
			silent(t, "migrate", out, password)
		}
		sing(t, newAviary(t, database), database, []string{password}, func(a *aviary, during func(document)) {
			db := rows(t, database) // which refuses a row, and says in its error's detail all that stood in it
			mustExec(t, db, `ALTER TABLE payloads ADD CONSTRAINT canary CHECK (reminder_id <> 'rem-row') NOT VALID`)
			during(a.person.remind("rem-row"))
			mustExec(t, db, `ALTER TABLE payloads DROP CONSTRAINT canary`)
			d.crash()
			a.unready()
			r := a.person.remind("rem-away")
			during(r)
			a.ask("producer", http.MethodPost, "/v1/reminders", r.String())
			a.ask("operator", http.MethodPost, "/v1/admin/dead-letters/"+a.ids["rem-gone"]+"/discard", `{"reason": "away", "version": 2}`)
			a.ask("admin", http.MethodDelete, "/v1/admin/users/"+a.person.user+"/data", `{"reason": "away"}`)
			d.back()
			a.ready()
		})
	})
}

// malformed are messages that nobody can read, each with canaries where it is wrong and elsewhere.
func (c canaries) malformed() []string {
	whole := c.remind("rem-unread")
	return []string{
		whole.String()[:200], whole.but("deadline", c.text).String(), whole.but("reminder_id", c.address+" "+c.name).String(),
		whole.but("channel", c.name+"!").String(), whole.but("content", []string{c.text}).String(), whole.String() + c.note,
		whole.but("metadata", map[string]any{"note": []string{c.note}}).String(), c.address + "\xff" + c.name,
		whole.but("filling", strings.Repeat(c.text+" ", 300<<10/len(c.text))).String(),
	}
}

// sing brings the canaries through all that can happen to a reminder.
func sing(t *testing.T, a *aviary, database string, secrets []string, away func(a *aviary, during func(document))) {
	t.Helper()
	c, lost := a.person, a.lost
	for id, want := range map[string]string{
		"rem-taken": "sent", "rem-refused": "dead", "rem-gone": "dead", "rem-broken": "unknown", "rem-garbled": "unknown",
		"rem-moved": "waiting", "rem-later": "waiting",
	} {
		d := c.remind(id)
		a.bring(d)
		a.bring(d.but("to", c.name)) // other content under one identity
		a.ids[id] = d.identity().EntryID()
		if got := a.of(d).Entry.State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	for _, body := range lost.malformed() {
		if got := a.ask("queue", http.MethodPost, "/v1/push/queue", body); got.status != http.StatusOK || got.verdict(t).State != "dead" {
			t.Errorf("malformed: %s", got)
		}
		a.ask("producer", http.MethodPost, "/v1/reminders", body)
		a.ask("operator", http.MethodPost, "/v1/admin/redrives", body)
	}
	for i, e := range a.list(url.Values{"type": {"!malformed"}}) {
		a.ids[fmt.Sprint("malformed-", i)] = e.ID
	}
	for _, who := range []string{"queue", "producer", "support", "operator", "admin"} { // each token with a letter more
		a.tokens["no "+who] = a.tokens[who] + "x"
		a.ask("no "+who, http.MethodPost, "/v1/push/queue", c.remind("rem-forged").String())
		a.ask("no "+who, http.MethodGet, "/v1/admin/entries?user_id="+c.user+"&token="+a.tokens[who], "")
	}
	away(a, func(d document) {
		if got := a.bring(d); !isNack(got) {
			t.Errorf("pushed while the database does not take it: %s", got)
		}
	})
	a.acts(c)
	for _, who := range []string{"producer", "support", "operator"} {
		a.looks(who)
	}
	tokens := secrets
	for _, token := range a.tokens {
		tokens = append(tokens, token)
	}
	whispers := append(append(c.said(), lost.said()...), tokens...)
	told := func() {
		for _, answer := range a.said {
			silent(t, "an answer", answer, whispers...)
		}
		for path, looked := range a.shown {
			silent(t, path, looked.String(), tokens...)
		}
	}
	told()
	a.tells()
	kept := a.forgets(database)
	whispers = append(whispers, kept...)
	a.said = slices.DeleteFunc(a.said, func(answer string) bool { return !strings.HasPrefix(answer, "after ") })
	told()

	metrics := string(a.operations("/metrics").body)
	if err := a.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
	everywhere := slices.Concat(whispers, c.person(), []string{c.seat}, lost.person(), []string{lost.seat})
	for where, text := range map[string]string{
		"the log": strings.Join(a.log.lines(), "\n"), "the metrics": metrics,
		"the spans": strings.Join(a.otlp["/v1/traces"].lines(), "\n"), "the metrics sent": strings.Join(a.otlp["/v1/metrics"].lines(), "\n"),
	} {
		silent(t, where, text, everywhere...)
		if len(text) < 500 {
			t.Errorf("%s tell nothing: %q", where, text)
		}
	}
}

// acts has people act, and err, with canaries where they do not belong.
func (a *aviary) acts(c canaries) {
	a.t.Helper()
	wants := func(status int, who, method, path, body string) answer {
		a.t.Helper()
		got := a.ask(who, method, path, body)
		if got.status != status {
			a.t.Errorf("%s %s: %s, want %d", method, path, got, status)
		}
		return got
	}
	post := func(status int, path string, body document) answer {
		a.t.Helper()
		wants(http.StatusBadRequest, "operator", http.MethodPost, path, body.but("reason", []string{c.text}).but("version", c.address).String())
		return wants(status, "operator", http.MethodPost, path, body.but("reason", "as agreed").String())
	}
	version := func(id string) int64 { return a.of(c.remind(id)).Entry.Version }
	taken := c.remind("rem-taken")
	a.heard("report", a.report(taken, "ev-1", "bounced", "receipt-1"))
	a.heard("report", a.report(taken, "ev-2", c.address, c.name))
	wants(http.StatusUnauthorized, "", http.MethodPost, "/v1/providers/mail/events", taken.String())
	wants(http.StatusOK, "producer", http.MethodPost, "/v1/reminders", c.remind("rem-asked").String())
	wants(http.StatusConflict, "producer", http.MethodPost, "/v1/reminders", c.remind("rem-asked").but("to", c.name).String())
	wants(http.StatusBadRequest, "producer", http.MethodPost, "/v1/reminders/rem-later/cancel", document{"type": c.text}.String())

	post(http.StatusOK, "/v1/admin/redrives", document{"filter": document{"class": "recipient"}, "dry_run": true})
	a.p.mended.Store(true)
	post(http.StatusAccepted, "/v1/admin/redrives", document{"filter": document{"class": "recipient"}, "rate": 100})
	a.comesTo(c.remind("rem-gone"), "sent", 30*time.Second)
	wants(http.StatusBadRequest, "operator", http.MethodPost, "/v1/admin/redrives",
		document{"filter": document{"class": c.address}, "ids": []string{c.text}, "reason": "as agreed"}.String())
	post(http.StatusOK, "/v1/admin/dead-letters/"+a.ids["rem-refused"]+"/discard", document{"version": version("rem-refused")})
	post(http.StatusOK, "/v1/admin/entries/"+a.ids["rem-garbled"]+"/resolve", document{"verdict": "abandoned", "version": version("rem-garbled")})
	post(http.StatusAccepted, "/v1/admin/reconciliation/runs", document{})
	post(http.StatusOK, "/v1/admin/providers/mail/pause", document{})
	post(http.StatusOK, "/v1/admin/providers/mail/resume", document{})
	wants(http.StatusNotFound, "operator", http.MethodPost, "/v1/admin/providers/"+c.address+"/pause", `{"reason": "as agreed"}`)
	wants(http.StatusForbidden, "operator", http.MethodDelete, "/v1/admin/users/"+c.user+"/data", `{"reason": "as agreed"}`)
}

// tells checks that an operator sees of one entry what nobody else does, and support no more than a mask.
func (a *aviary) tells() {
	a.t.Helper()
	for id, entry := range a.ids {
		looked := a.shown["/v1/admin/entries/"+entry]
		var story struct {
			Payload struct{ Raw []byte }
		}
		if err := json.Unmarshal(looked.body, &story); err != nil {
			a.t.Fatal(err)
		}
		words, text := a.person.said(), string(looked.body)
		if strings.HasPrefix(id, "malformed") {
			words, text = []string{"-canary-"}, string(story.Payload.Raw)
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				a.t.Errorf("an operator does not see %s of %s: %s", word, id, looked)
			}
		}
	}
	got := a.ask("support", http.MethodGet, "/v1/admin/entries/"+a.ids["rem-taken"], "")
	if !strings.Contains(string(got.body), `"payload":{"to":"a***@example.test","masked":true}`) {
		a.t.Errorf("support does not see the mask: %s", got)
	}
}

// forgets erases the person, and checks that nothing brings them back. It returns the hashes that went.
func (a *aviary) forgets(database string) []string {
	a.t.Helper()
	db := rows(a.t, database)
	var hashes []string
	for _, query := range []string{`SELECT content_hash FROM entries WHERE user_id <> ''`, `SELECT content_hash FROM conflicts`} {
		for _, row := range table(a.t, db, query) {
			hashes = append(hashes, fmt.Sprint(row["content_hash"]))
		}
	}
	if standing := contents(a.t, db); !strings.Contains(standing["payloads"], a.person.address) || !strings.Contains(standing["entries"], a.person.user) {
		a.t.Errorf("what is to be erased is not found: %v", standing)
	}
	got := a.ask("admin", http.MethodDelete, "/v1/admin/users/"+a.person.user+"/data", `{"reason": "request 7"}`)
	if got.status != http.StatusOK || len(hashes) < 14 {
		a.t.Errorf("erase: %s, %d hashes", got, len(hashes))
	}
	for id := range a.ids {
		if !strings.HasPrefix(id, "malformed") {
			a.bring(a.person.remind(id))
		}
	}
	before := len(a.said)
	for _, who := range []string{"producer", "support", "operator", "admin"} {
		a.looks(who)
	}
	for i := before; i < len(a.said); i++ {
		a.said[i] = "after " + a.said[i]
	}
	gone := append(a.person.person(), hashes...)
	for path, looked := range a.shown {
		silent(a.t, path, looked.String(), gone...)
	}
	for name, text := range contents(a.t, db) {
		silent(a.t, name, text, gone...)
		if name != "payloads" {
			silent(a.t, name, text, a.lost.person()...)
		}
	}
	for _, row := range table(a.t, db, `SELECT * FROM payloads`) {
		delete(row, "raw") // of what nobody could read; it goes by age
		silent(a.t, "payloads", fmt.Sprint(row), a.lost.person()...)
	}
	return gone
}
