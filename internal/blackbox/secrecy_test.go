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

// canaries are words, each of which occurs in one field of a reminder and nowhere else.
type canaries struct{ address, name, text, note, user, seat string }

func newCanaries() canaries {
	word := func(kind string) string { return kind + "-canary-" + strings.ToLower(rand.Text()) }
	return canaries{word("address"), word("name"), word("text"), word("note"), word("user"), word("seat")}
}

// secrets returns the words that no log and no response may contain, except when an operator reads one entry.
func (c canaries) secrets() []string { return []string{c.address, c.name, c.text, c.note} }

// personalData returns all words that an erasure removes.
func (c canaries) personalData() []string { return append(c.secrets(), c.user) }

func (c canaries) reminder(id string) document {
	channel, special := map[string]string{"rem-moved": "moved", "rem-later": "later"}[id]
	if !special {
		channel = "email"
	}
	return document{
		"reminder_id": id, "reservation_id": c.seat, "type": "seat_expiring", "channel": channel, "user_id": c.user,
		"to": c.address + "@example.test", "metadata": map[string]any{"note": c.note},
		"content": map[string]any{"subject": "Dear " + c.name, "text": c.text},
	}
}

// echoProvider is a provider whose every response repeats the request, with a status that depends on the
// reminder's id.
type echoProvider struct {
	*provider
	recovered atomic.Bool // the addresses that were gone accept again
}

func startEchoProvider(t *testing.T) *echoProvider {
	t.Helper()
	p := &echoProvider{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.provider = &provider{t: t, address: server.Listener.Addr().String()}
	return p
}

func (p *echoProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		closeWith(w, raw)
		return
	case status == 0, status == http.StatusGone && p.recovered.Load():
		status = http.StatusOK
	case status == http.StatusFound:
		w.Header().Set("Location", "http://127.0.0.1:1/?request="+url.QueryEscape(string(raw)))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, echo)
}

func closeWith(w http.ResponseWriter, words []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = conn.Write(words)
	_ = conn.Close()
}

// watchedGateway is a gateway whose log, responses, metrics and spans are all collected.
type watchedGateway struct {
	*gateway
	t             *testing.T
	p             *echoProvider
	otlp          map[string]*logBuffer // what was exported over OTLP, by path
	sent          canaries              // in the reminders that are delivered
	unreadable    canaries              // in the malformed messages
	tokens        map[string]string     // by role
	ids           map[string]string     // entry id by reminder id
	answers       []string              // every response that may contain no secret, with its request
	operatorViews map[string]answer     // an operator's reads of single entries, by path
}

func newWatchedGateway(t *testing.T, database string) *watchedGateway {
	t.Helper()
	g := &watchedGateway{
		t: t, p: startEchoProvider(t), otlp: map[string]*logBuffer{"/v1/traces": {}, "/v1/metrics": {}}, sent: newCanaries(), unreadable: newCanaries(),
		tokens: map[string]string{}, ids: map[string]string{}, operatorViews: map[string]answer{},
	}
	for _, role := range []string{"queue", "producer", "support", "operator", "admin"} {
		g.tokens[role] = role + "-token-canary-" + strings.ToLower(rand.Text())
	}
	caller := func(role string) map[string]any {
		special := map[string]string{"producer": producerToken, "support": supportToken, "operator": operatorToken, "admin": adminToken}[role]
		return map[string]any{"name": role + "s", "role": role, "tokens": []string{g.tokens[role], special}}
	}
	c := configure(database, g.p.provider).with(blindContract(), "providers", "mail", "contract").
		with(map[string]any{"secrets": []string{eventsSecret}}, "providers", "mail", "events").
		with(map[string]any{"level": "debug"}, "log").
		with([]string{g.tokens["queue"]}, "sources", "queue", "auth", "bearer", "tokens").
		with([]any{caller("producer"), caller("support"), caller("operator"), caller("admin")}, "callers").
		withProvider("moved", g.p.url(), "2s", blindContract()).withProvider("later", g.p.url(), "2s", blindContract())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(g.otlp[r.URL.Path], r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	cmd := exec.Command(binary, "serve", "-config", c.file(t))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_BSP_SCHEDULE_DELAY=200", "OTEL_METRIC_EXPORT_INTERVAL=500")
	var err error
	if g.gateway, err = spawn(t, cmd); err == nil {
		err = g.waitListening()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// request calls with a role's token, and records the response among those that may contain no secret.
func (g *watchedGateway) request(role, method, path, body string) answer {
	g.t.Helper()
	got, err := g.call(method, path, g.tokens[role], http.Header{"Content-Type": {"application/json"}}, []byte(body))
	if err != nil {
		g.t.Fatalf("%s %s: %v", method, path, err)
	}
	g.recordAnswer(role+", "+method, got)
	return got
}

func (g *watchedGateway) recordAnswer(label string, got answer) {
	g.answers = append(g.answers, fmt.Sprintf("%s: %s %v", label, got, got.header))
}

func (g *watchedGateway) deliver(d document) answer {
	g.t.Helper()
	return g.request("queue", http.MethodPost, "/v1/push/queue", d.String())
}

// readAll requests everything that a role may read, and some resources that it may not.
func (g *watchedGateway) readAll(role string) {
	g.t.Helper()
	c := g.sent
	for _, path := range []string{
		"/v1/reminders/rem-taken", "/v1/reminders/rem-gone", "/v1/reminders/" + c.name, "/v1/admin/entries?limit=200",
		"/v1/admin/entries?limit=" + c.address, "/v1/admin/entries?state=" + c.address, "/v1/admin/entries?cursor=" + c.text,
		"/v1/admin/entries?from=" + c.note, "/v1/admin/entries?conflict=true", "/v1/admin/dead-letters?limit=200",
		"/v1/admin/dead-letters?class=" + c.name, "/v1/admin/dead-letters/groups", "/v1/admin/reconciliation?limit=50",
		"/v1/admin/redrives", "/v1/admin/audit?limit=200", "/v1/admin/audit?actor=" + c.address, "/v1/admin/providers",
	} {
		g.request(role, http.MethodGet, path, "")
	}
	for _, id := range g.ids {
		for _, path := range []string{"/v1/admin/entries/" + id, "/v1/admin/dead-letters/" + id} {
			got := g.request(role, http.MethodGet, path, "")
			if role == "operator" || role == "admin" {
				g.answers = g.answers[:len(g.answers)-1]
				g.operatorViews[path] = got
			}
		}
	}
}

// checkNotContained checks that a text contains none of the words.
func checkNotContained(t *testing.T, where, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if i := strings.Index(text, word); i >= 0 {
			t.Errorf("%s shows %s: …%s…", where, word, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

func TestSecrecy_CanariesAppearNowhere(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		database := newSQLite(t)
		testCanaries(t, newWatchedGateway(t, database), database, nil, func(g *watchedGateway, during func(document)) {
			db := openDB(t, database)
			db.SetMaxOpenConns(1)
			mustExec(t, db, `BEGIN IMMEDIATE`)
			during(g.sent.reminder("rem-away"))
			mustExec(t, db, `ROLLBACK`)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		d := newOwnPostgres(t)
		password := "password-canary-" + strings.ToLower(rand.Text())
		database := strings.Replace(d.url(), "postgres@", "postgres:"+password+"@", 1)
		for _, wrong := range []string{ // nobody listens there, and the user does not exist
			strings.Replace(database, d.relay.Addr().String(), "127.0.0.1:1", 1), strings.Replace(database, "//postgres:", "//unknown:", 1),
		} {
			out, code := run(t, nil, "migrate", "-config", configure(wrong, &provider{address: "127.0.0.1:1"}).file(t))
			if code == 0 || !strings.Contains(out, "migrate") {
				t.Errorf("migrate ended with %d: %s", code, out)
			}
			checkNotContained(t, "migrate", out, password)
		}
		testCanaries(t, newWatchedGateway(t, database), database, []string{password}, func(g *watchedGateway, during func(document)) {
			db := openDB(t, database) // it rejects a row, and quotes the whole row in its error's detail
			mustExec(t, db, `ALTER TABLE payloads ADD CONSTRAINT canary CHECK (reminder_id <> 'rem-row') NOT VALID`)
			during(g.sent.reminder("rem-row"))
			mustExec(t, db, `ALTER TABLE payloads DROP CONSTRAINT canary`)
			d.crash()
			g.waitUnready()
			r := g.sent.reminder("rem-away")
			during(r)
			g.request("producer", http.MethodPost, "/v1/reminders", r.String())
			g.request("operator", http.MethodPost, "/v1/admin/dead-letters/"+g.ids["rem-gone"]+"/discard", `{"reason": "away", "version": 2}`)
			g.request("admin", http.MethodDelete, "/v1/admin/users/"+g.sent.user+"/data", `{"reason": "away"}`)
			d.restart()
			g.waitReady()
		})
	})
}

// malformedBodies returns messages that cannot be parsed, each with canaries in the malformed part and
// elsewhere.
func (c canaries) malformedBodies() []string {
	whole := c.reminder("rem-unread")
	return []string{
		whole.String()[:200], whole.with("deadline", c.text).String(), whole.with("reminder_id", c.address+" "+c.name).String(),
		whole.with("channel", c.name+"!").String(), whole.with("content", []string{c.text}).String(), whole.String() + c.note,
		whole.with("metadata", map[string]any{"note": []string{c.note}}).String(), c.address + "\xff" + c.name,
		whole.with("filling", strings.Repeat(c.text+" ", 300<<10/len(c.text))).String(),
	}
}

// testCanaries takes reminders with canaries through everything that can happen to a reminder.
func testCanaries(t *testing.T, g *watchedGateway, database string, secrets []string, away func(g *watchedGateway, during func(document))) {
	t.Helper()
	c, unreadable := g.sent, g.unreadable
	for id, want := range map[string]string{
		"rem-taken": "sent", "rem-refused": "dead", "rem-gone": "dead", "rem-broken": "unknown", "rem-garbled": "unknown",
		"rem-moved": "waiting", "rem-later": "waiting",
	} {
		d := c.reminder(id)
		g.deliver(d)
		g.deliver(d.with("to", c.name)) // other content under one identity
		g.ids[id] = d.identity().EntryID()
		if got := g.detail(d).Entry.State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	for _, body := range unreadable.malformedBodies() {
		if got := g.request("queue", http.MethodPost, "/v1/push/queue", body); got.status != http.StatusOK || got.plainReply(t).State != "dead" {
			t.Errorf("malformed: %s", got)
		}
		g.request("producer", http.MethodPost, "/v1/reminders", body)
		g.request("operator", http.MethodPost, "/v1/admin/redrives", body)
	}
	for i, e := range g.list(url.Values{"type": {"!malformed"}}) {
		g.ids[fmt.Sprint("malformed-", i)] = e.ID
	}
	for _, role := range []string{"queue", "producer", "support", "operator", "admin"} { // each token with one letter appended
		g.tokens["no "+role] = g.tokens[role] + "x"
		g.request("no "+role, http.MethodPost, "/v1/push/queue", c.reminder("rem-forged").String())
		g.request("no "+role, http.MethodGet, "/v1/admin/entries?user_id="+c.user+"&token="+g.tokens[role], "")
	}
	away(g, func(d document) {
		if got := g.deliver(d); !isNack(got) {
			t.Errorf("pushed while the database rejects it: %s", got)
		}
	})
	g.performActions(c)
	for _, role := range []string{"producer", "support", "operator"} {
		g.readAll(role)
	}
	tokens := secrets
	for _, token := range g.tokens {
		tokens = append(tokens, token)
	}
	forbidden := append(append(c.secrets(), unreadable.secrets()...), tokens...)
	checkAnswers := func() {
		for _, answer := range g.answers {
			checkNotContained(t, "an answer", answer, forbidden...)
		}
		for path, view := range g.operatorViews {
			checkNotContained(t, path, view.String(), tokens...)
		}
	}
	checkAnswers()
	g.checkViews()
	erased := g.checkErasure(database)
	forbidden = append(forbidden, erased...)
	g.answers = slices.DeleteFunc(g.answers, func(answer string) bool { return !strings.HasPrefix(answer, "after ") })
	checkAnswers()

	metrics := string(g.opsGet("/metrics").body)
	if err := g.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
	everywhere := slices.Concat(forbidden, c.personalData(), []string{c.seat}, unreadable.personalData(), []string{unreadable.seat})
	for where, text := range map[string]string{
		"the log": strings.Join(g.log.lines(), "\n"), "the metrics": metrics,
		"the spans": strings.Join(g.otlp["/v1/traces"].lines(), "\n"), "the metrics sent": strings.Join(g.otlp["/v1/metrics"].lines(), "\n"),
	} {
		checkNotContained(t, where, text, everywhere...)
		if len(text) < 500 {
			t.Errorf("%s are incomplete: %q", where, text)
		}
	}
}

// performActions calls every admin action, also with errors, with canaries in fields where they do not
// belong.
func (g *watchedGateway) performActions(c canaries) {
	g.t.Helper()
	expect := func(status int, role, method, path, body string) answer {
		g.t.Helper()
		got := g.request(role, method, path, body)
		if got.status != status {
			g.t.Errorf("%s %s: %s, want %d", method, path, got, status)
		}
		return got
	}
	post := func(status int, path string, body document) answer {
		g.t.Helper()
		expect(http.StatusBadRequest, "operator", http.MethodPost, path, body.with("reason", []string{c.text}).with("version", c.address).String())
		return expect(status, "operator", http.MethodPost, path, body.with("reason", "as agreed").String())
	}
	version := func(id string) int64 { return g.detail(c.reminder(id)).Entry.Version }
	taken := c.reminder("rem-taken")
	g.recordAnswer("status event", g.sendStatusEvent(taken, "ev-1", "bounced", "receipt-1"))
	g.recordAnswer("status event", g.sendStatusEvent(taken, "ev-2", c.address, c.name))
	expect(http.StatusUnauthorized, "", http.MethodPost, "/v1/providers/mail/events", taken.String())
	expect(http.StatusOK, "producer", http.MethodPost, "/v1/reminders", c.reminder("rem-rest").String())
	expect(http.StatusConflict, "producer", http.MethodPost, "/v1/reminders", c.reminder("rem-rest").with("to", c.name).String())
	expect(http.StatusBadRequest, "producer", http.MethodPost, "/v1/reminders/rem-later/cancel", document{"type": c.text}.String())

	post(http.StatusOK, "/v1/admin/redrives", document{"filter": document{"class": "recipient"}, "dry_run": true})
	g.p.recovered.Store(true)
	post(http.StatusAccepted, "/v1/admin/redrives", document{"filter": document{"class": "recipient"}, "rate": 100})
	g.waitForState(c.reminder("rem-gone"), "sent", 30*time.Second)
	expect(http.StatusBadRequest, "operator", http.MethodPost, "/v1/admin/redrives",
		document{"filter": document{"class": c.address}, "ids": []string{c.text}, "reason": "as agreed"}.String())
	post(http.StatusOK, "/v1/admin/dead-letters/"+g.ids["rem-refused"]+"/discard", document{"version": version("rem-refused")})
	post(http.StatusOK, "/v1/admin/entries/"+g.ids["rem-garbled"]+"/resolve", document{"verdict": "abandoned", "version": version("rem-garbled")})
	post(http.StatusAccepted, "/v1/admin/reconciliation/runs", document{})
	post(http.StatusOK, "/v1/admin/providers/mail/pause", document{})
	post(http.StatusOK, "/v1/admin/providers/mail/resume", document{})
	expect(http.StatusNotFound, "operator", http.MethodPost, "/v1/admin/providers/"+c.address+"/pause", `{"reason": "as agreed"}`)
	expect(http.StatusForbidden, "operator", http.MethodDelete, "/v1/admin/users/"+c.user+"/data", `{"reason": "as agreed"}`)
}

// checkViews checks that an operator sees the payload of a single entry, and support no more than a mask.
func (g *watchedGateway) checkViews() {
	g.t.Helper()
	for id, entry := range g.ids {
		view := g.operatorViews["/v1/admin/entries/"+entry]
		var detail struct {
			Payload struct{ Raw []byte }
		}
		if err := json.Unmarshal(view.body, &detail); err != nil {
			g.t.Fatal(err)
		}
		words, text := g.sent.secrets(), string(view.body)
		if strings.HasPrefix(id, "malformed") {
			words, text = []string{"-canary-"}, string(detail.Payload.Raw)
		}
		for _, word := range words {
			if !strings.Contains(text, word) {
				g.t.Errorf("an operator does not see %s of %s: %s", word, id, view)
			}
		}
	}
	got := g.request("support", http.MethodGet, "/v1/admin/entries/"+g.ids["rem-taken"], "")
	if !strings.Contains(string(got.body), `"payload":{"to":"a***@example.test","masked":true}`) {
		g.t.Errorf("support does not see the mask: %s", got)
	}
}

// checkErasure erases the user's data, and checks that nothing restores them. It returns the erased words and
// hashes.
func (g *watchedGateway) checkErasure(database string) []string {
	g.t.Helper()
	db := openDB(g.t, database)
	var hashes []string
	for _, query := range []string{`SELECT content_hash FROM entries WHERE user_id <> ''`, `SELECT content_hash FROM conflicts`} {
		for _, row := range queryRows(g.t, db, query) {
			hashes = append(hashes, fmt.Sprint(row["content_hash"]))
		}
	}
	if contents := dumpDatabase(g.t, db); !strings.Contains(contents["payloads"], g.sent.address) || !strings.Contains(contents["entries"], g.sent.user) {
		g.t.Errorf("the data to be erased are missing before: %v", contents)
	}
	got := g.request("admin", http.MethodDelete, "/v1/admin/users/"+g.sent.user+"/data", `{"reason": "request 7"}`)
	if got.status != http.StatusOK || len(hashes) < 14 {
		g.t.Errorf("erase: %s, %d hashes", got, len(hashes))
	}
	for id := range g.ids {
		if !strings.HasPrefix(id, "malformed") {
			g.deliver(g.sent.reminder(id))
		}
	}
	before := len(g.answers)
	for _, role := range []string{"producer", "support", "operator", "admin"} {
		g.readAll(role)
	}
	for i := before; i < len(g.answers); i++ {
		g.answers[i] = "after " + g.answers[i]
	}
	gone := append(g.sent.personalData(), hashes...)
	for path, view := range g.operatorViews {
		checkNotContained(g.t, path, view.String(), gone...)
	}
	for name, text := range dumpDatabase(g.t, db) {
		checkNotContained(g.t, name, text, gone...)
		if name != "payloads" {
			checkNotContained(g.t, name, text, g.unreadable.personalData()...)
		}
	}
	for _, row := range queryRows(g.t, db, `SELECT * FROM payloads`) {
		delete(row, "raw") // of unreadable messages; it is purged by age
		checkNotContained(g.t, "payloads", fmt.Sprint(row), g.unreadable.personalData()...)
	}
	return gone
}
