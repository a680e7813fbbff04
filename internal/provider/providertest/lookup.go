package providertest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// AnswerCut is the mode of a lookup that is answered honestly and in full before the connection breaks. Lookups also
// have the modes of messages, "reply:NNN BODY", which responds with this status and JSON body, and page:NNN, which
// responds with an HTML page as a router or proxy would.
const AnswerCut = "answer-cut"

// SetLookupModes sets the modes for all lookups, one per call; the last one stays in effect.
func (h *Hostile) SetLookupModes(modes ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control.Lookups = map[string][]string{"": modes}
}

// LastLookup returns the request of the last lookup.
func (h *Hostile) LastLookup() *http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastLookup
}

// lookup counts a lookup, and responds as its mode says.
func (h *Hostile) lookup(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.lookups++
	h.lastLookup = r
	status, body, to := http.StatusNotFound, `{"status": "not_found"}`, ""
	if t := h.keys[r.URL.Query().Get("send_key")]; t != nil {
		to = t.to
		if t.Accepts > 0 {
			status, body = http.StatusOK, `{"status": "accepted", "id": "`+t.id+`"}`
		}
	}
	mode := next(&h.control.Lookups, to)
	h.mu.Unlock()

	name, argument, _ := strings.Cut(mode, ":")
	media := "application/json"
	switch name {
	case OK:
	case "reply":
		code, text, _ := strings.Cut(argument, " ")
		status, _ = strconv.Atoi(code)
		body = text
	case "page":
		status, _ = strconv.Atoi(argument)
		media, body = "text/html", "<html><body>404 page not found</body></html>"
	case AnswerCut:
		w.Header().Set("Content-Length", "1000")
	default:
		respond(w, r, mode, "")
		return
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	if name == AnswerCut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// LookupProvider is a provider that supports lookups.
type LookupProvider interface {
	provider.Provider
	provider.Looker
}

// lookupRow is one row of the lookup table.
type lookupRow struct {
	mode    string
	result  ledger.LookupResult
	cause   string // not checked when empty
	receipt string
	short   bool // no complete response will come: the lookup gets one second
}

func lookupRows() []lookupRow {
	const (
		found    = ledger.LookupFound
		notFound = ledger.LookupNotFound
		none     = ledger.LookupUnanswered
		protocol = outbound.CauseProtocol
		status   = outbound.CauseStatus
		key      = "KEY" // placeholder for the send key of the lookup
	)
	table := []lookupRow{
		{mode: OK, result: found, cause: status, receipt: "fake-1"},
		{mode: `reply:200 {"status":"accepted","id":"m-1","send_key":"` + key + `"}`, result: found, receipt: "m-1"},
		{mode: `reply:200 {"id":"m-1","status":"accepted","more":{"deep":[1]}}`, result: found, receipt: "m-1"},
		// The status alone is proof; a receipt that cannot be stored is just left out.
		{mode: `reply:200 {"status":"accepted"}`, result: found, cause: status},
		{mode: `reply:200 {"status":"accepted","id":17}`, result: found, cause: status},
		{mode: `reply:200 {"status":"accepted","id":null}`, result: found, cause: status},
		{mode: `reply:200 {"status":"accepted","id":"` + strings.Repeat("m", 256) + `"}`, result: found, cause: status},
		{mode: `reply:200 {"status":"not_found"}`, result: notFound, cause: status},
		{mode: `reply:404 {"status":"not_found"}`, result: notFound, cause: status},
		{mode: `reply:404 {"status":"not_found","send_key":"` + key + `"}`, result: notFound, cause: status},
	}
	for _, mode := range []string{
		// A 404 that does not come from the lookup endpoint, and garbage with a 200.
		"page:404", "status:404", "reply:404 ", "reply:404 {}", "reply:404 null", `reply:404 {"message":"Not Found"}`,
		`reply:404 {"status":404,"error":"Not Found"}`, `reply:404 {"status":"accepted","id":"m-1"}`, `reply:404 "not_found"`,
		"page:200", "reply:200 ", "reply:200 {}", "reply:200 null", `reply:200 "accepted"`, `reply:200 [{"status":"accepted"}]`,
		`reply:200 {"status":"ok","id":"m-1"}`, `reply:200 {"status":"Accepted","id":"m-1"}`, `reply:200 {"Status":"accepted","id":"m-1"}`,
		`reply:200 {"status":true,"id":"m-1"}`, `reply:200 {"status":["accepted"]}`, `reply:200 {"id":"m-1"}`,
		// Two answers in one response, and an answer about another key.
		`reply:200 {"status":"accepted","status":"not_found"}`, `reply:200 {"status":"not_found","status":"accepted"}`,
		`reply:200 {"status":"accepted","id":"m-1"} {"status":"not_found"}`, `reply:200 {"status":"accepted","id":"m-1"`,
		`reply:200 {"status":"accepted","id":"m-1","send_key":"` + strings.Repeat("0", 64) + `"}`,
		`reply:404 {"status":"not_found","send_key":"` + strings.Repeat("0", 64) + `"}`,
		`reply:200 {"status":"accepted","id":"m-1","send_key":null}`,
		"reply:200 {\"status\":\"accepted\",\"id\":\"\xff\"}", "reply:200 \ufeff{\"status\":\"accepted\",\"id\":\"m-1\"}",
	} {
		table = append(table, lookupRow{mode: mode, cause: protocol})
	}
	for _, code := range []int{201, 202, 203, 206, 300, 304, 400, 401, 403, 405, 406, 408, 409, 410, 418, 429, 451, 500, 502, 503, 504, 599, 999} {
		for _, body := range []string{`{"status":"accepted","id":"m-1"}`, `{"status":"not_found"}`} {
			table = append(table, lookupRow{mode: "reply:" + strconv.Itoa(code) + " " + body, cause: status})
		}
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		table = append(table, lookupRow{mode: "redirect:" + strconv.Itoa(code), cause: status})
	}
	return append(
		table,
		lookupRow{mode: "throttle:3", cause: status}, lookupRow{mode: "busy:3", cause: status},
		lookupRow{mode: Close}, lookupRow{mode: Reset},
		lookupRow{mode: AcceptGarbage, cause: protocol},
		lookupRow{mode: AcceptBomb, cause: protocol},
		lookupRow{mode: AcceptHuge, cause: outbound.CauseBodyCut},
		lookupRow{mode: AcceptCut, cause: outbound.CauseBodyCut},
		lookupRow{mode: AnswerCut, cause: outbound.CauseBodyCut},
		lookupRow{mode: AcceptSlow, cause: outbound.CauseBodyCut, short: true},
		lookupRow{mode: AcceptStall, cause: outbound.CauseTimeout, short: true},
	)
}

// RunLookup runs the lookup table that every HTTP adapter with a lookup contract must pass: a lookup changes nothing
// at the provider, and only the documented responses are answers. open creates the adapter for the base URL of a
// fake; it must use /send for messages and lookups.
func RunLookup(t *testing.T, open func(t *testing.T, url string) LookupProvider) {
	for _, row := range lookupRows() {
		t.Run(row.mode, func(t *testing.T) {
			t.Parallel()
			row.check(t, open)
		})
	}
	t.Run("unknown key", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		result, o := lookup(t, open(t, Serve(t, &h)), Shipment(1).SendKey, time.Minute)
		if want := (ledger.Outcome{Status: 404, Cause: "status"}); result != ledger.LookupNotFound || o != want || h.Counts().Calls != 0 {
			t.Errorf("result %v, %+v", result, o)
		}
	})
	t.Run("message that was not accepted", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		p := open(t, Serve(t, &h))
		h.SetModes("status:500")
		send(t, p, Shipment(1), time.Minute)
		if result, _ := lookup(t, p, Shipment(1).SendKey, time.Minute); result != ledger.LookupNotFound {
			t.Errorf("result %v", result)
		}
	})
	t.Run("nobody listening", func(t *testing.T) {
		t.Parallel()
		result, o := lookup(t, open(t, "http://"+DeadAddress(t)), Shipment(1).SendKey, time.Minute)
		if result != ledger.LookupUnanswered || o != (ledger.Outcome{Cause: outbound.CauseRefused}) {
			t.Errorf("result %v, %+v", result, o)
		}
	})
	t.Run("a certificate that does not verify", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		result, o := lookup(t, open(t, ServeTLS(t, &h)), Shipment(1).SendKey, time.Minute)
		if result != ledger.LookupUnanswered || o.Cause != outbound.CauseCertificate || h.Counts().Lookups != 0 {
			t.Errorf("result %v, %+v", result, o)
		}
	})
	t.Run("no request after the deadline", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		result, o := lookup(t, open(t, Serve(t, &h)), Shipment(1).SendKey, 0)
		if result != ledger.LookupUnanswered || o.Cause != outbound.CauseNotDialled || h.Counts().Connections != 0 {
			t.Errorf("result %v, %+v over %d connections", result, o, h.Counts().Connections)
		}
	})
}

func (row lookupRow) check(t *testing.T, open func(*testing.T, string) LookupProvider) {
	var h Hostile
	p := open(t, Serve(t, &h))
	if o := send(t, p, Shipment(1), time.Minute); o.Result != ledger.ResultAccepted {
		t.Fatalf("sending: %+v", o)
	}
	key := Shipment(1).SendKey
	h.SetLookupModes(strings.ReplaceAll(row.mode, "KEY", key))
	limit := time.Minute
	if row.short {
		limit = time.Second
	}
	result, o := lookup(t, p, key, limit)
	if result != row.result || row.cause != "" && o.Cause != row.cause || o.Receipt != row.receipt {
		t.Errorf("result %v with cause %q and receipt %q, want %v with %q and %q",
			result, o.Cause, o.Receipt, row.result, row.cause, row.receipt)
	}
	if (o.Result == ledger.ResultAccepted) != (result == ledger.LookupFound) {
		t.Errorf("result %v with outcome %v", result, o.Result)
	}
	// The transport may repeat a lookup, since it changes nothing.
	if c := h.Counts(); c.Calls != 1 || c.Accepts != 1 || c.Lookups < 1 || c.FollowedRedirects != 0 {
		t.Errorf("%+v", c)
	}
}

func lookup(t testing.TB, p provider.Looker, key string, limit time.Duration) (ledger.LookupResult, ledger.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Lookup(ctx, key)
}
