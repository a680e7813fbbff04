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

// AnswerCut is the mode of a question that is answered honestly and in full before the connection breaks off.
// Besides it and the modes of a message there are "say:NNN BODY", which answers so as JSON, and page:NNN, a
// page of HTML such as a router or a proxy would give.
const AnswerCut = "answer-cut"

// PlayLookups makes the fake take these modes for every question; the last one stays.
func (h *Hostile) PlayLookups(modes ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control.Lookups = map[string][]string{"": modes}
}

// LastLookup is the last question's request.
func (h *Hostile) LastLookup() *http.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastAsk
}

// lookup counts a question, and does what its mode says.
func (h *Hostile) lookup(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.asks++
	h.lastAsk = r
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
	case "say":
		code, words, _ := strings.Cut(argument, " ")
		status, _ = strconv.Atoi(code)
		body = words
	case "page":
		status, _ = strconv.Atoi(argument)
		media, body = "text/html", "<html><body>404 page not found</body></html>"
	case AnswerCut:
		w.Header().Set("Content-Length", "1000")
	default:
		answer(w, r, mode, "")
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

// Asking is a provider that can be asked.
type Asking interface {
	provider.Provider
	provider.Asker
}

// question is one line of the table of look-ups.
type question struct {
	mode    string
	finding ledger.Finding
	cause   string // not checked when empty
	receipt string
	short   bool // nobody will ever answer: the question gets one second
}

func questions() []question {
	const (
		found    = ledger.Found
		notFound = ledger.NotFound
		none     = ledger.Unanswered
		protocol = outbound.CauseProtocol
		status   = outbound.CauseStatus
		key      = "KEY" // stands for the key asked about
	)
	table := []question{
		{mode: OK, finding: found, cause: status, receipt: "fake-1"},
		{mode: `say:200 {"status":"accepted","id":"m-1","send_key":"` + key + `"}`, finding: found, receipt: "m-1"},
		{mode: `say:200 {"id":"m-1","status":"accepted","more":{"deep":[1]}}`, finding: found, receipt: "m-1"},
		// The word is proof; a receipt that cannot be kept is only a receipt less.
		{mode: `say:200 {"status":"accepted"}`, finding: found, cause: status},
		{mode: `say:200 {"status":"accepted","id":17}`, finding: found, cause: status},
		{mode: `say:200 {"status":"accepted","id":null}`, finding: found, cause: status},
		{mode: `say:200 {"status":"accepted","id":"` + strings.Repeat("m", 256) + `"}`, finding: found, cause: status},
		{mode: `say:200 {"status":"not_found"}`, finding: notFound, cause: status},
		{mode: `say:404 {"status":"not_found"}`, finding: notFound, cause: status},
		{mode: `say:404 {"status":"not_found","send_key":"` + key + `"}`, finding: notFound, cause: status},
	}
	for _, mode := range []string{
		// A 404 that is not the lookup's own, and garbage under a 200.
		"page:404", "status:404", "say:404 ", "say:404 {}", "say:404 null", `say:404 {"message":"Not Found"}`,
		`say:404 {"status":404,"error":"Not Found"}`, `say:404 {"status":"accepted","id":"m-1"}`, `say:404 "not_found"`,
		"page:200", "say:200 ", "say:200 {}", "say:200 null", `say:200 "accepted"`, `say:200 [{"status":"accepted"}]`,
		`say:200 {"status":"ok","id":"m-1"}`, `say:200 {"status":"Accepted","id":"m-1"}`, `say:200 {"Status":"accepted","id":"m-1"}`,
		`say:200 {"status":true,"id":"m-1"}`, `say:200 {"status":["accepted"]}`, `say:200 {"id":"m-1"}`,
		// Two answers in one, and an answer about somebody else.
		`say:200 {"status":"accepted","status":"not_found"}`, `say:200 {"status":"not_found","status":"accepted"}`,
		`say:200 {"status":"accepted","id":"m-1"} {"status":"not_found"}`, `say:200 {"status":"accepted","id":"m-1"`,
		`say:200 {"status":"accepted","id":"m-1","send_key":"` + strings.Repeat("0", 64) + `"}`,
		`say:404 {"status":"not_found","send_key":"` + strings.Repeat("0", 64) + `"}`,
		`say:200 {"status":"accepted","id":"m-1","send_key":null}`,
		"say:200 {\"status\":\"accepted\",\"id\":\"\xff\"}", "say:200 \ufeff{\"status\":\"accepted\",\"id\":\"m-1\"}",
	} {
		table = append(table, question{mode: mode, cause: protocol})
	}
	for _, code := range []int{201, 202, 203, 206, 300, 304, 400, 401, 403, 405, 406, 408, 409, 410, 418, 429, 451, 500, 502, 503, 504, 599, 999} {
		for _, words := range []string{`{"status":"accepted","id":"m-1"}`, `{"status":"not_found"}`} {
			table = append(table, question{mode: "say:" + strconv.Itoa(code) + " " + words, cause: status})
		}
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		table = append(table, question{mode: "redirect:" + strconv.Itoa(code), cause: status})
	}
	return append(
		table,
		question{mode: "throttle:3", cause: status}, question{mode: "busy:3", cause: status},
		question{mode: Close}, question{mode: Reset},
		question{mode: AcceptGarbage, cause: protocol},
		question{mode: AcceptBomb, cause: protocol},
		question{mode: AcceptHuge, cause: outbound.CauseBodyCut},
		question{mode: AcceptCut, cause: outbound.CauseBodyCut},
		question{mode: AnswerCut, cause: outbound.CauseBodyCut},
		question{mode: AcceptSlow, cause: outbound.CauseBodyCut, short: true},
		question{mode: AcceptStall, cause: outbound.CauseTimeout, short: true},
	)
}

// RunLookup is the table of look-ups that every HTTP adapter with a lookup contract passes: what it was
// asked about stays as it was, and only the documented answers are answers. open makes the adapter for the
// base URL of a fake; it sends to /send and asks there.
func RunLookup(t *testing.T, open func(t *testing.T, url string) Asking) {
	for _, q := range questions() {
		t.Run(q.mode, func(t *testing.T) {
			t.Parallel()
			q.check(t, open)
		})
	}
	t.Run("a key that it never saw", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		finding, o := ask(t, open(t, Serve(t, &h)), Shipment(1).SendKey, time.Minute)
		if want := (ledger.Outcome{Status: 404, Cause: "status"}); finding != ledger.NotFound || o != want || h.Counts().Calls != 0 {
			t.Errorf("finding %v, %+v", finding, o)
		}
	})
	t.Run("a message that it did not take", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		p := open(t, Serve(t, &h))
		h.Play("status:500")
		send(t, p, Shipment(1), time.Minute)
		if finding, _ := ask(t, p, Shipment(1).SendKey, time.Minute); finding != ledger.NotFound {
			t.Errorf("finding %v", finding)
		}
	})
	t.Run("nobody listening", func(t *testing.T) {
		t.Parallel()
		finding, o := ask(t, open(t, "http://"+DeadAddress(t)), Shipment(1).SendKey, time.Minute)
		if finding != ledger.Unanswered || o != (ledger.Outcome{Cause: outbound.CauseRefused}) {
			t.Errorf("finding %v, %+v", finding, o)
		}
	})
	t.Run("a certificate that does not verify", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		finding, o := ask(t, open(t, ServeTLS(t, &h)), Shipment(1).SendKey, time.Minute)
		if finding != ledger.Unanswered || o.Cause != outbound.CauseCertificate || h.Counts().Asks != 0 {
			t.Errorf("finding %v, %+v", finding, o)
		}
	})
	t.Run("a question whose time is over asks nobody", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		finding, o := ask(t, open(t, Serve(t, &h)), Shipment(1).SendKey, 0)
		if finding != ledger.Unanswered || o.Cause != outbound.CauseNotDialled || h.Counts().Connections != 0 {
			t.Errorf("finding %v, %+v over %d connections", finding, o, h.Counts().Connections)
		}
	})
}

func (q question) check(t *testing.T, open func(*testing.T, string) Asking) {
	var h Hostile
	p := open(t, Serve(t, &h))
	if o := send(t, p, Shipment(1), time.Minute); o.Result != ledger.ResultAccepted {
		t.Fatalf("the message: %+v", o)
	}
	key := Shipment(1).SendKey
	h.PlayLookups(strings.ReplaceAll(q.mode, "KEY", key))
	limit := time.Minute
	if q.short {
		limit = time.Second
	}
	finding, o := ask(t, p, key, limit)
	if finding != q.finding || q.cause != "" && o.Cause != q.cause || o.Receipt != q.receipt {
		t.Errorf("finding %v because of %q with receipt %q, want %v because of %q with %q",
			finding, o.Cause, o.Receipt, q.finding, q.cause, q.receipt)
	}
	if (o.Result == ledger.ResultAccepted) != (finding == ledger.Found) {
		t.Errorf("finding %v with result %v", finding, o.Result)
	}
	// A question may be asked again by the transport; it changes nothing.
	if c := h.Counts(); c.Calls != 1 || c.Accepts != 1 || c.Asks < 1 || c.Strays != 0 {
		t.Errorf("%+v", c)
	}
}

func ask(t testing.TB, p provider.Asker, key string, limit time.Duration) (ledger.Finding, ledger.Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Ask(ctx, key)
}
