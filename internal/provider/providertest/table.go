package providertest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

// Serve runs the fake until the test ends and returns its base URL.
func Serve(t testing.TB, h *Hostile) string {
	t.Helper()
	server := unstarted(h)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// ServeTLS does the same with a certificate that no client trusts.
func ServeTLS(t testing.TB, h *Hostile) string {
	t.Helper()
	server := unstarted(h)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func unstarted(h *Hostile) *httptest.Server {
	server := httptest.NewUnstartedServer(h)
	server.Config.ConnState = h.ConnState
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	return server
}

// DeadAddress returns a loopback host and port where nobody listens.
func DeadAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Shipment returns shipment number n, which has its own send key.
func Shipment(n int) ledger.Shipment {
	id := ledger.Identity{ReminderID: "rem-" + strconv.Itoa(n), Type: "seat_expiring", Channel: "email"}
	return ledger.Shipment{
		Identity: id, SendKey: id.SendKey(), ReservationID: "seat-1842", CorrelationID: "req-5f",
		Recipient: "ada@example.org",
		Content:   []byte(`{"subject": "Your seat <is> about to expire", "text": "It is held until 09:10."}`),
	}
}

// classRow is one row of the class table.
type classRow struct {
	mode    string
	result  ledger.Result
	cause   string // not checked when empty
	receipt bool   // whether one is expected
	short   bool   // no complete response will come: the call gets one second
}

func classRows() []classRow {
	const (
		unknown     = ledger.ResultUnknown
		accepted    = ledger.ResultAccepted
		refused     = ledger.ResultRefused
		credentials = ledger.ResultCredentials
	)
	table := []classRow{
		{mode: OK, result: accepted, cause: "status", receipt: true},
		{mode: Close, result: unknown},
		{mode: Reset, result: unknown},
		{mode: AcceptClose, result: unknown, cause: "eof"},
		{mode: AcceptReset, result: unknown},
		{mode: AcceptStall, result: unknown, cause: "timeout", short: true},
		{mode: AcceptCut, result: accepted, cause: "body_cut"},
		{mode: AcceptHuge, result: accepted, cause: "body_cut"},
		{mode: AcceptSlow, result: accepted, cause: "body_cut", short: true},
		{mode: AcceptHTML, result: accepted, cause: "status"},
		{mode: AcceptBomb, result: unknown, cause: "protocol"},
		{mode: AcceptGarbage, result: unknown, cause: "protocol"},
		{mode: AcceptSwitch, result: unknown, cause: "status"},
		{mode: AcceptHints, result: accepted, cause: "status", receipt: true},
		{mode: AcceptTwice, result: accepted, cause: "status", receipt: true},
		{mode: EarlyReset, result: unknown},
		{mode: "throttle:3", result: ledger.ResultThrottled},
		{mode: "throttle:", result: ledger.ResultThrottled},
		{mode: "busy:3", result: ledger.ResultThrottled},
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		table = append(table, classRow{mode: "redirect:" + strconv.Itoa(status), result: credentials, cause: "status"})
	}
	listed := map[int]ledger.Result{
		400: refused, 413: refused, 415: refused, 422: refused,
		410: ledger.ResultGone,
		429: ledger.ResultThrottled,
		401: credentials, 402: credentials, 403: credentials, 404: credentials, 405: credentials, 407: credentials,
		300: credentials, 304: credentials,
		200: accepted, 201: accepted, 202: accepted, 204: accepted, 299: accepted,
	}
	for _, status := range []int{
		200, 201, 202, 204, 299, 300, 304, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 413, 415, 418,
		421, 422, 423, 425, 426, 428, 429, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 529,
		599, 600, 999,
	} {
		mode := "status:" + strconv.Itoa(status)
		if listed[status] == accepted || listed[status] == unknown {
			mode = "accept-" + mode
		}
		table = append(table, classRow{mode: mode, result: listed[status], cause: "status"})
	}
	return table
}

// RunHTTP runs the class table that every HTTP adapter must pass: over a new connection and over a reused one, each
// attempt is exactly one request, and its outcome is what the response proves. open creates the adapter for the base
// URL of a fake, with a new client that reuses connections and has no additional root certificates; it must send to
// /send.
func RunHTTP(t *testing.T, open func(t *testing.T, url string) provider.Provider) {
	for _, warm := range []bool{false, true} {
		name := map[bool]string{false: "cold", true: "warm"}[warm]
		for _, row := range classRows() {
			t.Run(name+" "+row.mode, func(t *testing.T) {
				t.Parallel()
				row.check(t, open, warm)
			})
		}
	}
	t.Run("500 reused connections reset after acceptance are 500 requests", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		p := open(t, Serve(t, &h))
		for i := range 500 {
			h.SetModes(OK, AcceptReset)
			if o := send(t, p, Shipment(2*i), time.Minute); o.Result != ledger.ResultAccepted {
				t.Fatalf("warm-up %d: %+v", i, o)
			}
			if o := send(t, p, Shipment(2*i+1), time.Minute); o.Result != ledger.ResultUnknown {
				t.Fatalf("attempt %d: %+v", i, o)
			}
		}
		if c := h.Counts(); c.Calls != 1000 || c.Accepts != 1000 || c.Connections > 501 {
			t.Errorf("calls %d, accepts %d, connections %d; want 1000, 1000 and one new connection per reset",
				c.Calls, c.Accepts, c.Connections)
		}
	})
	t.Run("nobody listening is unreachable", func(t *testing.T) {
		t.Parallel()
		p := open(t, "http://"+DeadAddress(t))
		if o := send(t, p, Shipment(1), time.Minute); o.Result != ledger.ResultUnreachable || o.Cause != "refused" {
			t.Errorf("got %+v", o)
		}
	})
	t.Run("a certificate that does not verify is a credentials fault without a call", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		p := open(t, ServeTLS(t, &h))
		o := send(t, p, Shipment(1), time.Minute)
		if o.Result != ledger.ResultCredentials || o.Cause != "certificate" || h.Counts().Calls != 0 {
			t.Errorf("got %+v after %d calls", o, h.Counts().Calls)
		}
	})
	t.Run("no call after the deadline", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		p := open(t, Serve(t, &h))
		if o := send(t, p, Shipment(1), 0); o.Result != ledger.ResultNotCalled || h.Counts().Connections != 0 {
			t.Errorf("got %+v over %d connections", o, h.Counts().Connections)
		}
	})
	t.Run("a shipment is the same bytes at every attempt of every instance", func(t *testing.T) {
		t.Parallel()
		var h Hostile
		url := Serve(t, &h)
		for range 3 {
			p := open(t, url)
			send(t, p, Shipment(7), time.Minute)
			send(t, p, Shipment(7), time.Minute)
		}
		if got := h.Counts().Keys[Shipment(7).SendKey]; got.Calls != 6 || got.Bodies != 1 {
			t.Errorf("%d calls with %d bodies, want 6 with 1", got.Calls, got.Bodies)
		}
	})
}

// RunOneCall checks that each call has a connection of its own: a second response to one message is never the outcome
// of the next message. open is as for [RunHTTP], with the client that is used in production.
func RunOneCall(t *testing.T, open func(t *testing.T, url string) provider.Provider) {
	var h Hostile
	p := open(t, Serve(t, &h))
	for i := range 50 {
		h.SetModes(AcceptTwice, "status:422")
		if o := send(t, p, Shipment(2*i), time.Minute); o.Result != ledger.ResultAccepted {
			t.Fatalf("message %d: %+v", 2*i, o)
		}
		if o := send(t, p, Shipment(2*i+1), time.Minute); o.Result != ledger.ResultRefused {
			t.Fatalf("message %d, which was refused: %+v", 2*i+1, o)
		}
	}
	if c := h.Counts(); c.Calls != 100 || c.Connections != 100 {
		t.Errorf("%d calls over %d connections, want 100 over 100", c.Calls, c.Connections)
	}
}

// check tries a row until the call really used the warm connection, if the row requires one: net/http drops a
// connection whose write loop has not reported within 50 ms, which happens on a machine with too few processors.
func (r classRow) check(t *testing.T, open func(*testing.T, string) provider.Provider, warm bool) {
	for range 5 {
		if r.try(t, open, warm) {
			return
		}
	}
	t.Error("the warm connection was never used")
}

func (r classRow) try(t *testing.T, open func(*testing.T, string) provider.Provider, warm bool) (connectionAsRequired bool) {
	var h Hostile
	p := open(t, Serve(t, &h))
	var before Counts
	if warm {
		if o := send(t, p, Shipment(0), time.Minute); o.Result != ledger.ResultAccepted {
			t.Fatalf("warm-up: %+v", o)
		}
		before = h.Counts()
	}
	h.SetModes(r.mode)
	limit := time.Minute
	if r.short {
		limit = time.Second
	}
	o := send(t, p, Shipment(1), limit)
	if o.Result != r.result || r.cause != "" && o.Cause != r.cause {
		t.Errorf("got %v with cause %q, want %v with %q", o.Result, o.Cause, r.result, r.cause)
	}
	if r.receipt != (o.Receipt != "") {
		t.Errorf("receipt %q", o.Receipt)
	}
	after := h.Counts()
	if calls := after.Calls - before.Calls; calls != 1 || after.FollowedRedirects != 0 {
		t.Errorf("%d requests and %d followed redirects for one attempt", calls, after.FollowedRedirects)
	}
	return !warm || after.Connections == before.Connections
}

func send(t testing.TB, p provider.Provider, s ledger.Shipment, limit time.Duration) ledger.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Send(ctx, s)
}

var _ http.Handler = (*Hostile)(nil)
