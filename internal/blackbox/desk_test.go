package blackbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

const administrator = "admin-token-0123456789"

// contents is all that stands in the database, by table.
func contents(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	names := `SELECT name FROM sqlite_master WHERE type = 'table'`
	if strings.Contains(fmt.Sprintf("%T", db.Driver()), "stdlib") {
		names = `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'`
	}
	all := map[string]string{}
	for _, row := range table(t, db, names) {
		name := fmt.Sprint(row["name"])
		for _, row := range table(t, db, `SELECT * FROM `+name+` ORDER BY 1, 2`) {
			all[name] += fmt.Sprintln(row)
		}
	}
	if !strings.Contains(all["entries"], "reminder_id") || len(all) < 4 {
		t.Fatalf("the database holds %v", all)
	}
	return all
}

func table(t *testing.T, db *sql.DB, query string) (all []map[string]any) {
	t.Helper()
	found, err := db.Query(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer found.Close()
	names, err := found.Columns()
	for err == nil && found.Next() {
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		err = found.Scan(into...)
		row := map[string]any{}
		for i, value := range values {
			row[names[i]] = value
			if raw, is := value.([]byte); is {
				row[names[i]] = string(raw)
			}
		}
		all = append(all, row)
	}
	if err := errors.Join(err, found.Err()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return all
}

func mustExec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// bureau is a gateway with somebody of each role, three dead letters, and two entries that wait for a person.
type bureau struct {
	*gateway
	p               *provider
	db              *sql.DB
	letters, doubts []document
}

func newBureau(t *testing.T, database string) *bureau {
	t.Helper()
	b := &bureau{p: startProvider(t), doubts: []document{remind("doubt-0"), remind("doubt-1")}}
	modes := map[string][]string{"": {"status:410"}}
	for _, d := range b.doubts {
		modes[d.to()] = []string{providertest.AcceptReset}
	}
	b.p.told(providertest.Control{Modes: modes})
	c := reconciled(database, b.p, blind())
	callers, _ := c["callers"].([]any)
	b.gateway = serve(t, c.with(append(callers, map[string]any{"name": "root", "role": "admin", "tokens": []string{administrator}}), "callers"))
	b.letters = b.dead("letter", 3)
	for _, d := range b.doubts {
		b.acked(d, 10*time.Second)
	}
	b.db = rows(t, database)
	return b
}

// as calls as somebody of a role, and checks the status and what holds of every answer.
func (b *bureau) as(who string, status int, method, path, body string) answer {
	b.t.Helper()
	token := map[string]string{
		"producer": producer, "support": supporter, "operator": operator, "admin": administrator, "stranger": "stranger-token-0123456789",
	}[who]
	got, err := b.call(method, path, token, http.Header{"Content-Type": {"application/json"}}, []byte(body))
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	if got.status != status {
		b.t.Errorf("%q %s %s %s: %s, want %d", who, method, path, body, got, status)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		b.t.Errorf("%s %s may be cached: %v", method, path, got.header)
	}
	if got.status < http.StatusBadRequest {
		return got
	}
	var problem map[string]any
	if err := json.Unmarshal(got.body, &problem); err != nil || got.header.Get("Content-Type") != "application/problem+json" {
		b.t.Errorf("%s %s is answered without a problem document: %s", method, path, got)
	}
	if got.status >= http.StatusInternalServerError {
		id, _ := problem["correlation_id"].(string)
		if _, err := b.says(id); err != nil || id == "" || len(problem) != 6 ||
			problem["detail"] != "The ledger cannot be reached. Repeat the request later." {
			b.t.Errorf("a failure shows more than an id under which the log has it, or less: %s", got)
		}
	}
	return got
}

// unmoved checks that nothing in the ledger differs afterwards.
func (b *bureau) unmoved(what string, do func()) {
	b.t.Helper()
	before := contents(b.t, b.db)
	do()
	if diff := cmp.Diff(before, contents(b.t, b.db)); diff != "" {
		b.t.Errorf("%s moved something:\n%s", what, diff)
	}
}

func TestDeskRolesHoldNoMoreThanTheirs(t *testing.T) {
	t.Parallel()
	b := newBureau(t, embedded(t))
	all := []string{"", "stranger", "producer", "support", "operator", "admin"}
	for _, route := range []struct {
		method, path, body string
		held               []string
	}{
		{http.MethodPost, "/v1/reminders", b.letters[0].String(), all[2:3]},
		{http.MethodGet, "/v1/reminders/letter-000", "", all[2:]},
		{http.MethodGet, "/v1/admin/dead-letters", "", all[3:]},
		{http.MethodGet, "/v1/admin/audit", "", all[4:]},
		{http.MethodDelete, "/v1/admin/users/nobody/data", `{"reason": "as agreed"}`, all[5:]},
	} {
		for i, who := range all {
			status := http.StatusForbidden
			if i < 2 {
				status = http.StatusUnauthorized
			} else if slices.Contains(route.held, who) {
				status = http.StatusOK
			}
			b.as(who, status, route.method, route.path, route.body)
		}
	}
	if acts := table(t, b.db, `SELECT actor, verb FROM audit`); len(acts) != 1 || acts[0]["actor"] != "root" {
		t.Errorf("the audit has %v, want one erasure", acts)
	}
}

func TestDeskTakesNothingBesidesWhatItAsksFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		b := newBureau(t, database)
		letter, doubt := b.of(b.letters[0]).Entry, b.of(b.doubts[0]).Entry
		reason := document{"reason": "as agreed"}
		b.unmoved("mass assignment", func() {
			for _, call := range []struct {
				who, method, path string
				body              document
			}{
				{"producer", http.MethodPost, "/v1/reminders", b.letters[0]},
				{"producer", http.MethodPost, "/v1/reminders", remind("fresh")},
				{"producer", http.MethodPost, "/v1/reminders/letter-000/cancel", document{}},
				{"operator", http.MethodPost, "/v1/admin/entries/" + doubt.ID + "/resolve", reason.but("verdict", "sent").but("version", doubt.Version)},
				{"operator", http.MethodPost, "/v1/admin/dead-letters/" + letter.ID + "/discard", reason.but("version", letter.Version)},
				{"operator", http.MethodPost, "/v1/admin/redrives", reason.but("ids", ids(b.letters))},
				{"operator", http.MethodPost, "/v1/admin/redrives/none/cancel", reason},
				{"operator", http.MethodPost, "/v1/admin/reconciliation/runs", reason},
				{"operator", http.MethodPost, "/v1/admin/providers/mail/pause", reason},
				{"admin", http.MethodDelete, "/v1/admin/users/u-77/data", reason},
			} {
				for member, value := range map[string]any{"state": "sent", "attempts": 0, "sent_at": "2031-03-04T09:00:00Z", "redrives": nil, "who": "root", "paused": false} {
					got := b.as(call.who, http.StatusBadRequest, call.method, call.path, call.body.but(member, value).String())
					named := strings.Contains(string(got.body), `"field":"`+member+`"`)
					if !named && !strings.HasPrefix(call.path, "/v1/reminders/") { // which takes two members, and names no other
						t.Errorf("%s does not name %s: %s", call.path, member, got)
					}
				}
				b.as(call.who, http.StatusMethodNotAllowed, http.MethodPatch, call.path, call.body.String())
			}
		})
		b.unmoved("a redrive that is none", func() {
			named, many := document{"ids": ids(b.letters)}.String(), document{"ids": make([]string, 1001)}.String()
			for _, body := range []string{
				`"limit": 10000000`, `"limit": -1`, `"limit": 0`, `"limit": 1.5`, `"limit": "100"`, `"limit": 1e400`, `"rate": 0`, `"rate": 1e9`,
				`"everything": true`, `"deadline": "2001-01-01T00:00:00Z"`, `"dry_run": "no"`, `"filter": {}`, `"reason": "twice"`, named[1 : len(named)-1],
			} {
				b.as("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"filter": {"class": "recipient"}, "reason": "as agreed", `+body+`}`)
			}
			for _, body := range []string{
				`"filter": {}`, `"filter": null`, `"filter": {"class": "sent"}`, `"filter": {"class": "recipient", "state": "sent"}`, `"filter": {"user_id": "u-77"}`,
				`"limit": 5`, `"ids": []`, `"ids": ["*"]`, `"ids": ["` + letter.ID + `", "` + letter.ID + `"]`, named[1:len(named)-1] + `, "limit": 2`, many[1 : len(many)-1],
			} {
				b.as("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"reason": "as agreed", `+body+`}`)
			}
			for _, why := range []string{`null`, `""`, `" "`, `"a\nb"`, `7`} {
				b.as("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"filter": {"class": "recipient"}, "reason": `+why+`}`)
			}
		})
	})
}

func TestDeskListsAreNotTalkedRound(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		b := newBureau(t, database)
		for _, verb := range []string{"pause", "resume"} {
			b.as("operator", http.StatusOK, http.MethodPost, "/v1/admin/providers/mail/"+verb, `{"reason": "as agreed"}`)
		}
		for range 2 {
			b.ends(b.redriven("", document{"ids": ids(b.letters[:1]), "rate": 100}).ID, 30*time.Second)
		}
		lists := []string{"entries", "dead-letters", "reconciliation", "redrives", "audit"}
		cursors := map[string]string{}
		b.unmoved("reading", func() {
			get := func(status int, list string, query url.Values) answer {
				t.Helper()
				return b.as("operator", status, http.MethodGet, "/v1/admin/"+list+"?"+query.Encode(), "")
			}
			for _, list := range append(lists, "dead-letters/groups", "providers") {
				for name, value := range map[string]string{
					"sort": "first_seen;select", "filter[state]": "dead' OR '1'='1", "limit": "1;drop table entries", "order": "1", "$where": "1", "limit ": "5",
				} {
					get(http.StatusBadRequest, list, url.Values{name: {value}})
				}
			}
			for _, name := range []string{"state", "class", "from", "to", "conflict"} {
				get(http.StatusBadRequest, "entries", url.Values{name: {"dead' OR '1'='1"}})
			}
			narrowing := []string{"reminder_id", "reservation_id", "user_id", "type", "channel", "provider", "code"}
			for _, word := range []string{"' OR '1'='1", `") OR 1=1 --`, "%", "letter-00_", `\`, "$1", "'; DELETE FROM entries; --"} {
				for list, names := range map[string][]string{"entries": narrowing, "dead-letters": narrowing, "audit": {"by", "verb"}} {
					for _, name := range names {
						if got := get(http.StatusOK, list, url.Values{name: {word}}); strings.TrimSpace(string(got.body)) != `{"items":[]}` {
							t.Errorf("%s=%s finds %s", name, word, got)
						}
					}
				}
			}
			for _, list := range lists {
				var page struct{ Next string }
				got := get(http.StatusOK, list, url.Values{"limit": {"1"}})
				if err := json.Unmarshal(got.body, &page); err != nil || page.Next == "" {
					t.Fatalf("%s has one page: %s", list, got)
				}
				cursors[list] = page.Next
			}
			for _, list := range lists {
				cursor := cursors[list]
				place, mac := cursor[:strings.LastIndexByte(cursor, '.')], cursor[strings.LastIndexByte(cursor, '.'):]
				for _, bent := range []string{
					place, place + ".", mac, "9" + cursor, cursor + "A", cursor[:len(cursor)-2], strings.ToUpper(cursor), place + "'" + mac,
					"9999999999999999.x" + mac, "' OR '1'='1", "*", strings.Repeat("A", 3000),
				} {
					get(http.StatusBadRequest, list, url.Values{"cursor": {bent}})
				}
				for other, cursor := range cursors {
					get(map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[other == list], list, url.Values{"cursor": {cursor}})
				}
			}
			get(http.StatusBadRequest, "entries", url.Values{"cursor": {cursors["entries"]}, "state": {"dead"}}) // another list
		})
	})
}

// refusing has the database take no line of the audit; the gateway goes on meanwhile.
func (b *bureau) refusing(do func()) {
	b.t.Helper()
	refuse, allow := `ALTER TABLE audit ADD CONSTRAINT canary CHECK (false) NOT VALID`, `ALTER TABLE audit DROP CONSTRAINT canary`
	if strings.Contains(fmt.Sprintf("%T", b.db.Driver()), "sqlite") {
		refuse = `CREATE TRIGGER canary BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'canary'); END`
		allow = `DROP TRIGGER canary`
	}
	mustExec(b.t, b.db, refuse)
	do()
	mustExec(b.t, b.db, allow)
}

// act is what somebody does, and how the audit tells it.
type act struct {
	who, method, path string
	status            int
	body              document
	verb              string
	entry             any    // nil where it is done to none
	before, after     string // what stands in them
}

// told checks the newest line of the audit.
func (b *bureau) told(a act) {
	b.t.Helper()
	var page struct{ Items []map[string]any }
	got := b.as("operator", http.StatusOK, http.MethodGet, "/v1/admin/audit?limit=1&verb="+url.QueryEscape(a.verb), "")
	if err := json.Unmarshal(got.body, &page); err != nil || len(page.Items) != 1 {
		b.t.Fatalf("the audit does not tell of %s: %s", a.verb, got)
	}
	l := page.Items[0]
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(l["at"]))
	name := map[string]string{"operator": "oncall", "admin": "root"}[a.who]
	if diff := cmp.Diff([]any{name, a.who, a.verb, a.body["reason"], a.entry}, []any{l["who"], l["role"], l["what"], l["why"], l["entry"]}); diff != "" ||
		err != nil || time.Since(at).Abs() > 5*time.Minute || !strings.Contains(fmt.Sprint(l["before"]), a.before) || !strings.Contains(fmt.Sprint(l["after"]), a.after) {
		b.t.Errorf("the audit tells of %s: %s\n%s", a.verb, got, diff)
	}
}

func TestDeskActsAreInTheAuditOrDoNotHappen(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		b := newBureau(t, database)
		person := remind("person").but("user_id", "u-77")
		b.acked(person, 10*time.Second)
		doubt, letter := b.of(b.doubts[0]).Entry, b.of(b.letters[0]).Entry
		reason := func(why string) document { return document{"reason": why} }
		const post, desk = http.MethodPost, "/v1/admin/"
		resolution := reason("their log has it").but("verdict", "sent").but("version", doubt.Version).but("receipt", "r-9")
		batch := reason("they have moved").but("ids", ids(b.letters[1:])).but("rate", 0.1)
		acts := []act{
			{"operator", post, desk + "entries/" + doubt.ID + "/resolve", 200, resolution, "resolve:sent", doubt.ID, "state:unknown", "state:sent"},
			{"operator", post, desk + "dead-letters/" + letter.ID + "/discard", 200, reason("no course").but("version", letter.Version), "discard", letter.ID, "state:dead", "state:dropped"},
			{"operator", post, desk + "providers/mail/pause", 200, reason("until noon"), "pause:mail", nil, "paused:false", "paused:true"},
			{"operator", post, desk + "reconciliation/runs", 202, reason("they are back"), "reconcile", nil, "<nil>", "<nil>"},
			{"admin", http.MethodDelete, desk + "users/u-77/data", 200, reason("request 7"), "erase:user", nil, "<nil>", "<nil>"},
			{"operator", post, desk + "redrives", 202, batch, "redrive", nil, "<nil>", "size:2"},
		}
		b.refusing(func() {
			b.unmoved("an act without its line", func() {
				for _, a := range acts {
					a.status = http.StatusServiceUnavailable
					b.as(a.who, a.status, a.method, a.path, a.body.String())
				}
			})
		})
		var last answer
		for _, a := range acts {
			last = b.as(a.who, a.status, a.method, a.path, a.body.String())
			b.told(a)
		}
		b.told(act{who: "admin", body: reason("request 7"), verb: "erase", entry: person.identity().EntryID(), before: "state:dead", after: "reason:erased"})

		var running job
		if err := json.Unmarshal(last.body, &running); err != nil {
			t.Fatal(err)
		}
		acts = []act{
			{"operator", post, desk + "redrives/" + running.ID + "/cancel", 200, reason("the wrong batch"), "redrive:cancel", nil, "<nil>", running.ID},
			{"operator", post, desk + "providers/mail/resume", 200, reason("noon"), "resume:mail", nil, "paused:true", "paused:false"},
		}
		b.refusing(func() {
			for _, a := range acts {
				a.status = http.StatusServiceUnavailable
				b.as(a.who, a.status, a.method, a.path, a.body.String())
			}
		})
		if state := b.outcome(running.ID).Redrive.State; state != "running" || b.gates()["mail"].Provider == "" {
			t.Errorf("the redrive is %s, the gate %v", state, b.gates())
		}
		for _, a := range acts {
			b.as(a.who, a.status, a.method, a.path, a.body.String())
			b.told(a)
		}
	})
}

// TestDeskSearchesDoNotHoldPushesUp : fifty people search through all that there is while pushes go on.
func TestDeskSearchesDoNotHoldPushesUp(t *testing.T) {
	t.Parallel()
	b := newBureau(t, shared(t))
	b.p.plays(providertest.OK)
	mustExec(t, b.db, `INSERT INTO entries (reminder_id, type, channel, send_key, state, version, reason, receipt, first_seen, updated)
		SELECT 'old-' || i, 'seat_expiring', 'email', repeat('0', 64), 'sent', 2, 'accepted', 'r', now() - i * interval '1 second', now()
		FROM generate_series(1, 60000) AS i`)
	median := func(prefix string) time.Duration {
		took := make([]time.Duration, 40)
		for i := range took {
			a := b.push(remind(fmt.Sprintf("%s-%d", prefix, i)).String())
			if a.status != http.StatusOK || a.verdict(t).State != "sent" {
				t.Errorf("pushed %s: %s", prefix, a)
			}
			took[i] = a.took
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	alone := median("alone")
	over, stop := context.WithCancel(t.Context())
	var found atomic.Int64
	searched := make(chan struct{})
	go func() {
		defer close(searched)
		parallel(50, func(i int) {
			path := []string{"/v1/admin/entries?code=none&limit=200", "/v1/admin/entries?type=none", "/v1/admin/dead-letters/groups"}[i%3]
			for over.Err() == nil {
				a, err := b.call(http.MethodGet, path, supporter, nil, nil)
				if err != nil || a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
					t.Errorf("a search: %s, %v", a, err)
					return
				}
				found.Add(1)
			}
		})
	}()
	until(t, 30*time.Second, "the searches are under way", func() bool { return found.Load() > 0 })
	beside := median("beside")
	stop()
	<-searched
	t.Logf("median of a push: %v alone, %v beside %d searches", alone, beside, found.Load())
	if beside > max(5*alone, 300*time.Millisecond) {
		t.Errorf("a push takes %v beside searches, and %v without", beside, alone)
	}
}
