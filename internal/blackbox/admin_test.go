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

const adminToken = "admin-token-0123456789"

// dumpDatabase returns the contents of the database, by table.
func dumpDatabase(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	names := `SELECT name FROM sqlite_master WHERE type = 'table'`
	if strings.Contains(fmt.Sprintf("%T", db.Driver()), "stdlib") {
		names = `SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'`
	}
	all := map[string]string{}
	for _, row := range queryRows(t, db, names) {
		name := fmt.Sprint(row["name"])
		for _, row := range queryRows(t, db, `SELECT * FROM `+name+` ORDER BY 1, 2`) {
			all[name] += fmt.Sprintln(row)
		}
	}
	if !strings.Contains(all["entries"], "reminder_id") || len(all) < 4 {
		t.Fatalf("the database contains %v", all)
	}
	return all
}

func queryRows(t *testing.T, db *sql.DB, query string) (all []map[string]any) {
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

// adminHarness is a gateway with a caller of each role, three dead letters, and two entries in doubt that
// wait for an operator.
type adminHarness struct {
	*gateway
	p                    *provider
	db                   *sql.DB
	deadLetters, inDoubt []document
}

func newAdminHarness(t *testing.T, database string) *adminHarness {
	t.Helper()
	h := &adminHarness{p: startProvider(t), inDoubt: []document{newReminder("doubt-0"), newReminder("doubt-1")}}
	modes := map[string][]string{"": {"status:410"}}
	for _, d := range h.inDoubt {
		modes[d.recipient()] = []string{providertest.AcceptReset}
	}
	h.p.setControl(providertest.Control{Modes: modes})
	c := reconcileConfig(database, h.p, blindContract())
	callers, _ := c["callers"].([]any)
	h.gateway = serve(t, c.with(append(callers, map[string]any{"name": "root", "role": "admin", "tokens": []string{adminToken}}), "callers"))
	h.deadLetters = h.makeDeadLetters("dead", 3)
	for _, d := range h.inDoubt {
		h.pushUntilAcked(d, 10*time.Second)
	}
	h.db = openDB(t, database)
	return h
}

// request calls with the token of a role, and checks the status and what every admin response has in common.
func (h *adminHarness) request(role string, status int, method, path, body string) answer {
	h.t.Helper()
	token := map[string]string{
		"producer": producerToken, "support": supportToken, "operator": operatorToken, "admin": adminToken, "unknown": "unknown-token-0123456789",
	}[role]
	got, err := h.call(method, path, token, http.Header{"Content-Type": {"application/json"}}, []byte(body))
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	if got.status != status {
		h.t.Errorf("%q %s %s %s: %s, want %d", role, method, path, body, got, status)
	}
	if got.header.Get("Cache-Control") != "no-store" {
		h.t.Errorf("%s %s may be cached: %v", method, path, got.header)
	}
	if got.status < http.StatusBadRequest {
		return got
	}
	var problem map[string]any
	if err := json.Unmarshal(got.body, &problem); err != nil || got.header.Get("Content-Type") != "application/problem+json" {
		h.t.Errorf("%s %s is not answered with a problem document: %s", method, path, got)
	}
	if got.status >= http.StatusInternalServerError {
		id, _ := problem["correlation_id"].(string)
		if _, err := h.waitForLog(id); err != nil || id == "" || len(problem) != 6 ||
			problem["detail"] != "The ledger cannot be reached. Repeat the request later." {
			h.t.Errorf("a failure response does not contain just a correlation id that the log has: %s", got)
		}
	}
	return got
}

// checkUnchanged checks that a function changes nothing in the ledger.
func (h *adminHarness) checkUnchanged(what string, do func()) {
	h.t.Helper()
	before := dumpDatabase(h.t, h.db)
	do()
	if diff := cmp.Diff(before, dumpDatabase(h.t, h.db)); diff != "" {
		h.t.Errorf("%s changed something:\n%s", what, diff)
	}
}

func TestAdmin_RolesAllowNoMoreThanTheirs(t *testing.T) {
	t.Parallel()
	h := newAdminHarness(t, newSQLite(t))
	all := []string{"", "unknown", "producer", "support", "operator", "admin"}
	for _, route := range []struct {
		method, path, body string
		held               []string
	}{
		{http.MethodPost, "/v1/reminders", h.deadLetters[0].String(), all[2:3]},
		{http.MethodGet, "/v1/reminders/dead-000", "", all[2:]},
		{http.MethodGet, "/v1/admin/dead-letters", "", all[3:]},
		{http.MethodGet, "/v1/admin/audit", "", all[4:]},
		{http.MethodDelete, "/v1/admin/users/missing/data", `{"reason": "as agreed"}`, all[5:]},
	} {
		for i, role := range all {
			status := http.StatusForbidden
			if i < 2 {
				status = http.StatusUnauthorized
			} else if slices.Contains(route.held, role) {
				status = http.StatusOK
			}
			h.request(role, status, route.method, route.path, route.body)
		}
	}
	if audit := queryRows(t, h.db, `SELECT actor, action FROM audit`); len(audit) != 1 || audit[0]["actor"] != "root" {
		t.Errorf("the audit has %v, want one erasure", audit)
	}
}

func TestAdmin_UnknownMembersAndInvalidRedrivesAreRejected(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		h := newAdminHarness(t, database)
		deadLetter, inDoubt := h.detail(h.deadLetters[0]).Entry, h.detail(h.inDoubt[0]).Entry
		reason := document{"reason": "as agreed"}
		h.checkUnchanged("mass assignment", func() {
			for _, call := range []struct {
				role, method, path string
				body               document
			}{
				{"producer", http.MethodPost, "/v1/reminders", h.deadLetters[0]},
				{"producer", http.MethodPost, "/v1/reminders", newReminder("fresh")},
				{"producer", http.MethodPost, "/v1/reminders/dead-000/cancel", document{}},
				{"operator", http.MethodPost, "/v1/admin/entries/" + inDoubt.ID + "/resolve", reason.with("verdict", "sent").with("version", inDoubt.Version)},
				{"operator", http.MethodPost, "/v1/admin/dead-letters/" + deadLetter.ID + "/discard", reason.with("version", deadLetter.Version)},
				{"operator", http.MethodPost, "/v1/admin/redrives", reason.with("ids", entryIDs(h.deadLetters))},
				{"operator", http.MethodPost, "/v1/admin/redrives/none/cancel", reason},
				{"operator", http.MethodPost, "/v1/admin/reconciliation/runs", reason},
				{"operator", http.MethodPost, "/v1/admin/providers/mail/pause", reason},
				{"admin", http.MethodDelete, "/v1/admin/users/u-77/data", reason},
			} {
				for member, value := range map[string]any{"state": "sent", "attempts": 0, "sent_at": "2031-03-04T09:00:00Z", "redrives": nil, "actor": "root", "paused": false} {
					got := h.request(call.role, http.StatusBadRequest, call.method, call.path, call.body.with(member, value).String())
					named := strings.Contains(string(got.body), `"field":"`+member+`"`)
					if !named && !strings.HasPrefix(call.path, "/v1/reminders/") { // it takes two members, and names no other
						t.Errorf("%s does not name %s: %s", call.path, member, got)
					}
				}
				h.request(call.role, http.StatusMethodNotAllowed, http.MethodPatch, call.path, call.body.String())
			}
		})
		h.checkUnchanged("an invalid redrive", func() {
			named, many := document{"ids": entryIDs(h.deadLetters)}.String(), document{"ids": make([]string, 1001)}.String()
			for _, body := range []string{
				`"limit": 10000000`, `"limit": -1`, `"limit": 0`, `"limit": 1.5`, `"limit": "100"`, `"limit": 1e400`, `"rate": 0`, `"rate": 1e9`,
				`"everything": true`, `"deadline": "2001-01-01T00:00:00Z"`, `"dry_run": "no"`, `"filter": {}`, `"reason": "twice"`, named[1 : len(named)-1],
			} {
				h.request("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"filter": {"class": "recipient"}, "reason": "as agreed", `+body+`}`)
			}
			for _, body := range []string{
				`"filter": {}`, `"filter": null`, `"filter": {"class": "sent"}`, `"filter": {"class": "recipient", "state": "sent"}`, `"filter": {"user_id": "u-77"}`,
				`"limit": 5`, `"ids": []`, `"ids": ["*"]`, `"ids": ["` + deadLetter.ID + `", "` + deadLetter.ID + `"]`, named[1:len(named)-1] + `, "limit": 2`, many[1 : len(many)-1],
			} {
				h.request("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"reason": "as agreed", `+body+`}`)
			}
			for _, reason := range []string{`null`, `""`, `" "`, `"a\nb"`, `7`} {
				h.request("operator", http.StatusBadRequest, http.MethodPost, "/v1/admin/redrives", `{"filter": {"class": "recipient"}, "reason": `+reason+`}`)
			}
		})
	})
}

func TestAdmin_ListsResistInjectionAndForgedCursors(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		h := newAdminHarness(t, database)
		for _, action := range []string{"pause", "resume"} {
			h.request("operator", http.StatusOK, http.MethodPost, "/v1/admin/providers/mail/"+action, `{"reason": "as agreed"}`)
		}
		for range 2 {
			h.waitRedriveEnd(h.startRedrive("", document{"ids": entryIDs(h.deadLetters[:1]), "rate": 100}).ID, 30*time.Second)
		}
		lists := []string{"entries", "dead-letters", "reconciliation", "redrives", "audit"}
		cursors := map[string]string{}
		h.checkUnchanged("reading", func() {
			get := func(status int, list string, query url.Values) answer {
				t.Helper()
				return h.request("operator", status, http.MethodGet, "/v1/admin/"+list+"?"+query.Encode(), "")
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
			for _, word := range []string{"' OR '1'='1", `") OR 1=1 --`, "%", "dead-00_", `\`, "$1", "'; DELETE FROM entries; --"} {
				for list, names := range map[string][]string{"entries": narrowing, "dead-letters": narrowing, "audit": {"actor", "action"}} {
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
					t.Fatalf("%s has only one page: %s", list, got)
				}
				cursors[list] = page.Next
			}
			for _, list := range lists {
				cursor := cursors[list]
				position, mac := cursor[:strings.LastIndexByte(cursor, '.')], cursor[strings.LastIndexByte(cursor, '.'):]
				for _, forged := range []string{
					position, position + ".", mac, "9" + cursor, cursor + "A", cursor[:len(cursor)-2], strings.ToUpper(cursor), position + "'" + mac,
					"9999999999999999.x" + mac, "' OR '1'='1", "*", strings.Repeat("A", 3000),
				} {
					get(http.StatusBadRequest, list, url.Values{"cursor": {forged}})
				}
				for other, cursor := range cursors {
					get(map[bool]int{true: http.StatusOK, false: http.StatusBadRequest}[other == list], list, url.Values{"cursor": {cursor}})
				}
			}
			get(http.StatusBadRequest, "entries", url.Values{"cursor": {cursors["entries"]}, "state": {"dead"}}) // another list
		})
	})
}

// withAuditFailing makes the database reject inserts into the audit while do runs; the gateway keeps running.
func (h *adminHarness) withAuditFailing(do func()) {
	h.t.Helper()
	refuse, allow := `ALTER TABLE audit ADD CONSTRAINT canary CHECK (false) NOT VALID`, `ALTER TABLE audit DROP CONSTRAINT canary`
	if strings.Contains(fmt.Sprintf("%T", h.db.Driver()), "sqlite") {
		refuse = `CREATE TRIGGER canary BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'canary'); END`
		allow = `DROP TRIGGER canary`
	}
	mustExec(h.t, h.db, refuse)
	do()
	mustExec(h.t, h.db, allow)
}

// auditedRequest is an admin action, and how the audit records it.
type auditedRequest struct {
	role, method, path string
	status             int
	body               document
	action             string
	entry              any    // nil where it concerns no entry
	before, after      string // substrings of the recorded values
}

// checkAudit checks the newest audit event of the action.
func (h *adminHarness) checkAudit(a auditedRequest) {
	h.t.Helper()
	var page struct{ Items []map[string]any }
	got := h.request("operator", http.StatusOK, http.MethodGet, "/v1/admin/audit?limit=1&action="+url.QueryEscape(a.action), "")
	if err := json.Unmarshal(got.body, &page); err != nil || len(page.Items) != 1 {
		h.t.Fatalf("the audit has no event of %s: %s", a.action, got)
	}
	l := page.Items[0]
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(l["at"]))
	name := map[string]string{"operator": "oncall", "admin": "root"}[a.role]
	if diff := cmp.Diff([]any{name, a.role, a.action, a.body["reason"], a.entry}, []any{l["actor"], l["role"], l["action"], l["reason"], l["entry"]}); diff != "" ||
		err != nil || time.Since(at).Abs() > 5*time.Minute || !strings.Contains(fmt.Sprint(l["before"]), a.before) || !strings.Contains(fmt.Sprint(l["after"]), a.after) {
		h.t.Errorf("the audit event of %s: %s\n%s", a.action, got, diff)
	}
}

func TestAdmin_ActionsAreAuditedOrDoNotHappen(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		h := newAdminHarness(t, database)
		erased := newReminder("erased").with("user_id", "u-77")
		h.pushUntilAcked(erased, 10*time.Second)
		inDoubt, deadLetter := h.detail(h.inDoubt[0]).Entry, h.detail(h.deadLetters[0]).Entry
		reason := func(reason string) document { return document{"reason": reason} }
		const post, admin = http.MethodPost, "/v1/admin/"
		resolution := reason("their log has it").with("verdict", "sent").with("version", inDoubt.Version).with("receipt", "r-9")
		batch := reason("they have moved").with("ids", entryIDs(h.deadLetters[1:])).with("rate", 0.1)
		audit := []auditedRequest{
			{"operator", post, admin + "entries/" + inDoubt.ID + "/resolve", 200, resolution, "resolve:sent", inDoubt.ID, "state:unknown", "state:sent"},
			{"operator", post, admin + "dead-letters/" + deadLetter.ID + "/discard", 200, reason("no course").with("version", deadLetter.Version), "discard", deadLetter.ID, "state:dead", "state:dropped"},
			{"operator", post, admin + "providers/mail/pause", 200, reason("until noon"), "pause:mail", nil, "paused:false", "paused:true"},
			{"operator", post, admin + "reconciliation/runs", 202, reason("they are back"), "reconcile", nil, "<nil>", "<nil>"},
			{"admin", http.MethodDelete, admin + "users/u-77/data", 200, reason("request 7"), "erase:user", nil, "<nil>", "<nil>"},
			{"operator", post, admin + "redrives", 202, batch, "redrive", nil, "<nil>", "size:2"},
		}
		h.withAuditFailing(func() {
			h.checkUnchanged("an action without its audit event", func() {
				for _, a := range audit {
					a.status = http.StatusServiceUnavailable
					h.request(a.role, a.status, a.method, a.path, a.body.String())
				}
			})
		})
		var last answer
		for _, a := range audit {
			last = h.request(a.role, a.status, a.method, a.path, a.body.String())
			h.checkAudit(a)
		}
		h.checkAudit(auditedRequest{role: "admin", body: reason("request 7"), action: "erase", entry: erased.identity().EntryID(), before: "state:dead", after: "reason:erased"})

		var running redriveSummary
		if err := json.Unmarshal(last.body, &running); err != nil {
			t.Fatal(err)
		}
		audit = []auditedRequest{
			{"operator", post, admin + "redrives/" + running.ID + "/cancel", 200, reason("the wrong batch"), "redrive:cancel", nil, "<nil>", running.ID},
			{"operator", post, admin + "providers/mail/resume", 200, reason("noon"), "resume:mail", nil, "paused:true", "paused:false"},
		}
		h.withAuditFailing(func() {
			for _, a := range audit {
				a.status = http.StatusServiceUnavailable
				h.request(a.role, a.status, a.method, a.path, a.body.String())
			}
		})
		if state := h.redriveDetail(running.ID).Redrive.State; state != "running" || h.closedGates()["mail"].Provider == "" {
			t.Errorf("the redrive is %s, the gate %v", state, h.closedGates())
		}
		for _, a := range audit {
			h.request(a.role, a.status, a.method, a.path, a.body.String())
			h.checkAudit(a)
		}
	})
}

// TestAdmin_SearchesDoNotDelayPushes runs fifty concurrent searches through all entries while pushes go on.
func TestAdmin_SearchesDoNotDelayPushes(t *testing.T) {
	t.Parallel()
	h := newAdminHarness(t, newPostgres(t))
	h.p.setModes(providertest.OK)
	mustExec(t, h.db, `INSERT INTO entries (reminder_id, type, channel, send_key, state, version, reason, receipt, first_seen, updated)
		SELECT 'old-' || i, 'seat_expiring', 'email', repeat('0', 64), 'sent', 2, 'accepted', 'r', now() - i * interval '1 second', now()
		FROM generate_series(1, 60000) AS i`)
	median := func(prefix string) time.Duration {
		took := make([]time.Duration, 40)
		for i := range took {
			a := h.push(newReminder(fmt.Sprintf("%s-%d", prefix, i)).String())
			if a.status != http.StatusOK || a.plainReply(t).State != "sent" {
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
				a, err := h.call(http.MethodGet, path, supportToken, nil, nil)
				if err != nil || a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
					t.Errorf("a search: %s, %v", a, err)
					return
				}
				found.Add(1)
			}
		})
	}()
	waitUntil(t, 30*time.Second, "the searches have begun", func() bool { return found.Load() > 0 })
	beside := median("beside")
	stop()
	<-searched
	t.Logf("median of a push: %v alone, %v beside %d searches", alone, beside, found.Load())
	if beside > max(5*alone, 300*time.Millisecond) {
		t.Errorf("a push takes %v beside searches, and %v without", beside, alone)
	}
}
