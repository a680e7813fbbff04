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
	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// collaborators are what the surface calls: each a function that a test may set. One that is not set
// must not be called.
type collaborators struct {
	t       *testing.T
	deliver func(context.Context, ledger.Delivery) (ledger.Reply, error)
	request func(context.Context, string, reminder.Reminder, ledger.Trace) (ledger.Reply, error)
	cancel  func(ctx context.Context, caller, id, typ, channel string) ([]ledger.Cancelled, error)
	find    func(context.Context, string) ([]ledger.Entry, error)
	list    func(context.Context, ledger.Query) ([]ledger.Entry, error)
	story   func(context.Context, ledger.Identity) (ledger.Story, error)
	waiting func(context.Context, ledger.Doubt, int) ([]ledger.Story, error)
	start   func(context.Context, ledger.Act) (ledger.Run, error)
	resolve func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error)
	hear    func(context.Context, ledger.Report) (bool, error)
	desks
}

func (c *collaborators) uncalled(name string, missing bool) {
	if missing {
		c.t.Errorf("%s must not be called", name)
		panic("uncalled")
	}
}

func (c *collaborators) Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error) {
	c.uncalled("Deliver", c.deliver == nil)
	return c.deliver(ctx, d)
}

func (c *collaborators) Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error) {
	c.uncalled("Request", c.request == nil)
	return c.request(ctx, caller, r, t)
}

func (c *collaborators) Cancel(ctx context.Context, caller, id, typ, channel string) ([]ledger.Cancelled, error) {
	c.uncalled("Cancel", c.cancel == nil)
	return c.cancel(ctx, caller, id, typ, channel)
}

func (c *collaborators) ByReminder(ctx context.Context, id string) ([]ledger.Entry, error) {
	c.uncalled("ByReminder", c.find == nil)
	return c.find(ctx, id)
}

func (c *collaborators) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	c.uncalled("List", c.list == nil)
	return c.list(ctx, q)
}

func (c *collaborators) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	c.uncalled("Story", c.story == nil)
	return c.story(ctx, id)
}

func (c *collaborators) Waiting(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Story, error) {
	c.uncalled("Waiting", c.waiting == nil)
	return c.waiting(ctx, after, limit)
}

func (c *collaborators) Start(ctx context.Context, act ledger.Act) (ledger.Run, error) {
	c.uncalled("Start", c.start == nil)
	return c.start(ctx, act)
}

func (c *collaborators) Resolve(ctx context.Context, id ledger.Identity, by ledger.Resolution) (ledger.Entry, error) {
	c.uncalled("Resolve", c.resolve == nil)
	return c.resolve(ctx, id, by)
}

func (c *collaborators) Hear(ctx context.Context, r ledger.Report) (bool, error) {
	c.uncalled("Hear", c.hear == nil)
	return c.hear(ctx, r)
}

// letter is a format whose envelope is the message, and whose password is a header.
type letter struct{ broker.Intake }

func newLetter(t *testing.T, source string, limit int64) letter {
	t.Helper()
	auth, err := broker.NewHeader("Password", []string{"letter-secret"})
	if err != nil {
		t.Fatal(err)
	}
	intake, err := broker.NewIntake(broker.Options{Source: source, Limit: limit, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	return letter{intake}
}

func (l letter) Open(h http.Header, raw []byte) ledger.Delivery {
	return l.Bound(ledger.Delivery{MessageID: h.Get("Message"), Count: 1, Raw: raw, Trace: broker.TraceOf(h)})
}

var testNow = time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)

// house is the surface under test with its contract.
type house struct {
	t       *testing.T
	handler http.Handler
	doc     *openapi3.T
	log     *bytes.Buffer
	pattern string // of the last request
}

func newHouse(t *testing.T, c *collaborators, change ...func(*Options)) *house {
	t.Helper()
	c.t = t
	h := &house{t: t, doc: contract(t), log: &bytes.Buffer{}}
	o := Options{
		Sources: map[string]Source{
			"letters": {Format: newLetter(t, "letters", 1<<10), Limit: 1 << 10},
			"parcels": {Format: newLetter(t, "parcels", bodyLimit)},
		},
		Callers: callers(),
		Deliver: c, Request: c, Cancel: c, Reminder: c, List: c, Story: c,
		Groups: c, Discard: c, Redrive: redriveDesk{c}, Redrives: c, Report: c, Stop: redriveDesk{c}, Audit: c, Providers: c, Steer: c, Erase: c,
		Cases: c, Start: c, Resolve: c, Hear: c, Events: map[string]EventReader{"mail": sealed{}},
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
		{Name: "desk", Role: Support, TokenHashes: [][sha256.Size]byte{hash("support")}},
		{Name: "oncall", Role: Operator, TokenHashes: [][sha256.Size]byte{hash("operator")}},
		{Name: "root", Role: Admin, TokenHashes: [][sha256.Size]byte{hash("admin")}},
		{Name: "ghost", Role: "poltergeist", TokenHashes: [][sha256.Size]byte{hash("ghost")}},
	}
}

// contract is openapi.yaml, closed: a member that it does not name is a fault of ours.
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

// do serves a request and holds the answer against the contract.
func (h *house) do(r *http.Request) *httptest.ResponseRecorder {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.pattern = ""
	h.handler.ServeHTTP(w, r)
	h.check(r, w, h.pattern)
	return w
}

func (h *house) check(r *http.Request, w *httptest.ResponseRecorder, pattern string) {
	h.t.Helper()
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		h.t.Errorf("%s %s: Cache-Control is %q", r.Method, r.URL, got)
	}
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		h.t.Errorf("%s %s: X-Content-Type-Options is %q", r.Method, r.URL, got)
	}
	for name := range w.Header() {
		if strings.HasPrefix(name, "Access-Control-") {
			h.t.Errorf("%s %s: answers with %s", r.Method, r.URL, name)
		}
	}
	if body := w.Body.String(); body != "" && !strings.HasSuffix(body, "\n") {
		h.t.Errorf("%s %s: the body does not end its line: %q", r.Method, r.URL, body)
	}
	if length := w.Header().Get("Content-Length"); length != "" && length != strconv.Itoa(w.Body.Len()) {
		h.t.Errorf("%s %s: %s bytes are announced, %d came", r.Method, r.URL, length, w.Body.Len())
	}
	var operation *openapi3.Operation
	if pattern != "" {
		operation = h.doc.Paths.Value(pattern).GetOperation(r.Method)
	}
	if operation == nil { // no route: the contract has one answer for all of these
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
		h.t.Errorf("%s %s: the answer breaks the contract: %v\n%s", r.Method, r.URL, err, w.Body)
	}
}

// problem is the answer's problem document, which must be one by the contract.
func (h *house) problem(w *httptest.ResponseRecorder) wire.Problem {
	h.t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		h.t.Fatalf("%d is answered as %q, not as a problem: %s", w.Code, got, w.Body)
	}
	var document any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		h.t.Fatal(err)
	}
	if err := h.doc.Components.Schemas["Problem"].Value.VisitJSON(document); err != nil {
		h.t.Errorf("the problem breaks the contract: %v\n%s", err, w.Body)
	}
	var p wire.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		h.t.Fatal(err)
	}
	if want := fmt.Sprintf(`{"type":%q,"title":%q,"status":%d,"code":%q,"detail":`, p.Type, p.Title, p.Status, p.Code); !strings.HasPrefix(w.Body.String(), want) {
		h.t.Errorf("the problem is told in another order: %s", w.Body)
	}
	if p.Status != w.Code {
		h.t.Errorf("the problem says %d under status %d", p.Status, w.Code)
	}
	return p
}

// wants serves a request that must be answered with this status and, for a problem, this code.
func (h *house) wants(r *http.Request, status int, code wire.ProblemCode) *httptest.ResponseRecorder {
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

// entry is one that stands as a test needs it.
func entry(change func(*ledger.Entry)) ledger.Entry {
	id := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
	e := ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "c0ffee", State: ledger.Sent, Version: 2,
		Reason: ledger.ReasonAccepted, Provider: "mail", Fingerprint: "secret-print", Receipt: "r-1",
		Attempts: 1, Spent: 1, Deliveries: 1, Owner: ledger.OwnerLedger,
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

func TestTheAdminAPICanHaveAListenerOfItsOwn(t *testing.T) {
	const push, entries = "POST /v1/push/{source}", "GET /v1/admin/entries"
	surfaces := map[string]struct {
		handler http.Handler
		want    map[string]bool
	}{
		"whole":  {New(Options{}), map[string]bool{push: true, entries: true}},
		"public": {NewPublic(Options{}), map[string]bool{push: true}},
		"admin":  {NewAdmin(Options{}), map[string]bool{entries: true}},
	}
	for name, surface := range surfaces {
		routed := map[string]bool{}
		err := chi.Walk(surface.handler.(chi.Router), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			routed[method+" "+route] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range []string{push, entries} {
			if routed[route] != surface.want[route] {
				t.Errorf("%s serves %s: %v", name, route, routed[route])
			}
		}
	}
}
