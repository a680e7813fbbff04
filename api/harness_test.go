package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/go-chi/chi/v5"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// fakeServices implements the services that handlers call, each by a function that a test may set. One that is not
// set must not be called.
type fakeServices struct {
	t            *testing.T
	deliver      func(context.Context, ledger.Delivery) (ledger.Reply, error)
	request      func(context.Context, string, reminder.Reminder, ledger.Trace) (ledger.Reply, error)
	cancel       func(ctx context.Context, caller, id, typ, channel string) ([]ledger.Cancelled, error)
	find         func(context.Context, string) ([]ledger.Entry, error)
	list         func(context.Context, ledger.Query) ([]ledger.Entry, error)
	detail       func(context.Context, ledger.Identity) (ledger.EntryDetail, error)
	unresolved   func(context.Context, ledger.DoubtPosition, int) ([]ledger.EntryDetail, error)
	startSweep   func(context.Context, ledger.AuditEvent) (ledger.SweepRun, error)
	resolve      func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error)
	recordStatus func(context.Context, ledger.StatusEvent) (bool, error)
	adminFakes
}

func (c *fakeServices) uncalled(name string, missing bool) {
	if missing {
		c.t.Errorf("%s must not be called", name)
		panic("uncalled")
	}
}

func (c *fakeServices) Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error) {
	c.uncalled("Deliver", c.deliver == nil)
	return c.deliver(ctx, d)
}

func (c *fakeServices) Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error) {
	c.uncalled("Request", c.request == nil)
	return c.request(ctx, caller, r, t)
}

func (c *fakeServices) Cancel(ctx context.Context, caller, id, typ, channel string) ([]ledger.Cancelled, error) {
	c.uncalled("Cancel", c.cancel == nil)
	return c.cancel(ctx, caller, id, typ, channel)
}

func (c *fakeServices) ByReminder(ctx context.Context, id string) ([]ledger.Entry, error) {
	c.uncalled("ByReminder", c.find == nil)
	return c.find(ctx, id)
}

func (c *fakeServices) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	c.uncalled("List", c.list == nil)
	return c.list(ctx, q)
}

func (c *fakeServices) EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
	c.uncalled("EntryDetail", c.detail == nil)
	return c.detail(ctx, id)
}

func (c *fakeServices) Unresolved(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error) {
	c.uncalled("Unresolved", c.unresolved == nil)
	return c.unresolved(ctx, after, limit)
}

func (c *fakeServices) StartSweep(ctx context.Context, audit ledger.AuditEvent) (ledger.SweepRun, error) {
	c.uncalled("StartSweep", c.startSweep == nil)
	return c.startSweep(ctx, audit)
}

func (c *fakeServices) Resolve(ctx context.Context, id ledger.Identity, resolution ledger.Resolution) (ledger.Entry, error) {
	c.uncalled("Resolve", c.resolve == nil)
	return c.resolve(ctx, id, resolution)
}

func (c *fakeServices) RecordStatus(ctx context.Context, event ledger.StatusEvent) (bool, error) {
	c.uncalled("RecordStatus", c.recordStatus == nil)
	return c.recordStatus(ctx, event)
}

// fakeFormat is a format whose body is the message, and whose password is a header.
type fakeFormat struct{ ingest.Base }

func newFakeFormat(t *testing.T, source string, limit int64) fakeFormat {
	t.Helper()
	auth, err := ingest.NewHeader("Password", []string{"push-secret"})
	if err != nil {
		t.Fatal(err)
	}
	base, err := ingest.NewBase(ingest.Options{Source: source, Limit: limit, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	return fakeFormat{base}
}

func (f fakeFormat) Open(h http.Header, raw []byte) ledger.Delivery {
	return f.LimitSize(ledger.Delivery{MessageID: h.Get("Message"), DeliveryCount: 1, Raw: raw, Trace: ingest.TraceFrom(h)})
}

var testNow = time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)

// harness is the handler under test with the contract, which each answer is checked against.
type harness struct {
	t       *testing.T
	handler http.Handler
	doc     *openapi3.T
	log     *bytes.Buffer
	pattern string // of the last request
}

func newHarness(t *testing.T, c *fakeServices, change ...func(*Options)) *harness {
	t.Helper()
	c.t = t
	h := &harness{t: t, doc: contract(t), log: &bytes.Buffer{}}
	o := Options{
		Sources: map[string]Source{
			"seats":   {Format: newFakeFormat(t, "seats", 1<<10), Limit: 1 << 10},
			"courses": {Format: newFakeFormat(t, "courses", bodyLimit)},
		},
		Callers: callers(),
		Deliver: c, Request: c, Cancel: c, Reminder: c, List: c, EntryDetail: c,
		Groups: c, Discard: c, Redrive: fakeRedriver{c}, Redrives: c, RedriveReport: c, CancelRedrive: fakeRedriver{c}, Audit: c, Providers: c, Pauser: c, Erase: c,
		Unresolved: c, StartSweep: c, Resolve: c, StatusEvents: c, Events: map[string]StatusEventReader{"mail": fakeEvents{}},
		CursorKey: []byte("0123456789abcdef0123456789abcdef"),
		Log:       slog.New(slog.NewJSONHandler(h.log, nil)),
		Now:       func() time.Time { return testNow },
		Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r)
				h.pattern = chi.RouteContext(r.Context()).RoutePattern()
			})
		},
	}
	for _, f := range change {
		f(&o)
	}
	h.handler = New(o)
	return h
}

func callers() []Caller {
	hash := func(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }
	return []Caller{
		{Name: "checkout", Role: Producer, TokenHashes: [][sha256.Size]byte{hash("old-producer"), hash("producer")}},
		{Name: "helpdesk", Role: Support, TokenHashes: [][sha256.Size]byte{hash("support")}},
		{Name: "oncall", Role: Operator, TokenHashes: [][sha256.Size]byte{hash("operator")}},
		{Name: "root", Role: Admin, TokenHashes: [][sha256.Size]byte{hash("admin")}},
		{Name: "norole", Role: "no-such-role", TokenHashes: [][sha256.Size]byte{hash("norole")}},
	}
}

// contract returns openapi.yaml with closed schemas: an answer with a member that is not documented is an error.
func contract(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	for _, schema := range doc.Components.Schemas {
		if schema.Value.AdditionalProperties.Has == nil && schema.Value.Type.Is("object") {
			schema.Value.AdditionalProperties.Has = &closed
		}
	}
	return doc
}

// request builds a request with a token; a body is JSON.
func request(method, target, token, body string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	if body != "" {
		r = httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// do serves a request and checks the answer against the contract.
func (h *harness) do(r *http.Request) *httptest.ResponseRecorder {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.pattern = ""
	h.handler.ServeHTTP(w, r)
	h.check(r, w, h.pattern)
	return w
}

func (h *harness) check(r *http.Request, w *httptest.ResponseRecorder, pattern string) {
	h.t.Helper()
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		h.t.Errorf("%s %s: Cache-Control is %q", r.Method, r.URL, got)
	}
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		h.t.Errorf("%s %s: X-Content-Type-Options is %q", r.Method, r.URL, got)
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") {
			h.t.Errorf("%s %s: has the header %s", r.Method, r.URL, name)
		}
	}
	if body := w.Body.String(); body != "" && !strings.HasSuffix(body, "\n") {
		h.t.Errorf("%s %s: the body does not end with a newline: %q", r.Method, r.URL, body)
	}
	if length := w.Header().Get("Content-Length"); length != "" && length != strconv.Itoa(w.Body.Len()) {
		h.t.Errorf("%s %s: Content-Length is %s, the body has %d bytes", r.Method, r.URL, length, w.Body.Len())
	}
	var operation *openapi3.Operation
	if pattern != "" {
		operation = h.doc.Paths.Value(pattern).GetOperation(r.Method)
	}
	if operation == nil { // no route: the answer is always a problem
		h.problem(w)
		return
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r,
			Route:   &routers.Route{Spec: h.doc, Operation: operation, Path: pattern, Method: r.Method},
		},
		Status: w.Code, Header: w.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	input.SetBodyBytes(w.Body.Bytes())
	if err := openapi3filter.ValidateResponse(h.t.Context(), input); err != nil {
		h.t.Errorf("%s %s: the answer violates the contract: %v\n%s", r.Method, r.URL, err, w.Body)
	}
}

// problem returns the problem document of an answer, after checking it against the contract.
func (h *harness) problem(w *httptest.ResponseRecorder) wire.Problem {
	h.t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		h.t.Fatalf("status %d has content type %q, not a problem: %s", w.Code, got, w.Body)
	}
	var document any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		h.t.Fatal(err)
	}
	if err := h.doc.Components.Schemas["Problem"].Value.VisitJSON(document); err != nil {
		h.t.Errorf("the problem violates the contract: %v\n%s", err, w.Body)
	}
	var p wire.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		h.t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"type":%q,"title":%q,"status":%d,"code":%q,"detail":`, p.Type, p.Title, p.Status, p.Code); !strings.HasPrefix(w.Body.String(), want) {
		h.t.Errorf("the members of the problem are in another order: %s", w.Body)
	}
	if p.Status != w.Code {
		h.t.Errorf("the problem has status %d, the answer %d", p.Status, w.Code)
	}
	return p
}

// expect serves a request whose answer must have this status and, for a problem, this code.
func (h *harness) expect(r *http.Request, status int, code wire.ProblemCode) *httptest.ResponseRecorder {
	h.t.Helper()
	w := h.do(r)
	if w.Code != status {
		h.t.Errorf("%s %s: %d, not %d: %s", r.Method, r.URL, w.Code, status, w.Body)
		return w
	}
	if code != "" {
		if p := h.problem(w); p.Code != code {
			h.t.Errorf("%s %s: code %q, not %q", r.Method, r.URL, p.Code, code)
		}
	}
	return w
}

func decoded[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var body T
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return body
}

// entry returns a sent entry, changed as a test needs it.
func entry(change func(*ledger.Entry)) ledger.Entry {
	id := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
	e := ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "c0ffee", State: ledger.Sent, Version: 2,
		Reason: ledger.ReasonAccepted, Provider: "mail", Fingerprint: "fingerprint-canary", Receipt: "r-1",
		Attempts: 1, BudgetUsed: 1, Deliveries: 1, Owner: ledger.OwnerLedger,
		FirstSeen: testNow, Updated: testNow.Add(time.Second), Published: testNow,
		Source: "checkout", CorrelationID: "req-5f", ReservationID: "seat-1842", UserID: "u-77",
	}
	if change != nil {
		change(&e)
	}
	return e
}

const aReminder = `{"reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email",
	"to": "ada-canary@example.org", "content": {"subject": "subject-canary"}}`

// faultReader fails after some bytes.
type faultReader struct {
	io.Reader
	err error
}

func (f *faultReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}
