package providertest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Modes of a [Hostile] without an argument. Modes named accept count the message as accepted before they misbehave.
// Modes with an argument are status:NNN, accept-status:NNN, throttle:VALUE (429 with that Retry-After), busy:VALUE
// (503 with that Retry-After) and redirect:NNN.
const (
	OK            = "ok"
	Close         = "close"          // the connection is closed without a response, nothing accepted
	Reset         = "reset"          // like Close, with a TCP reset
	AcceptClose   = "accept-close"   // accepted, then closed without a response
	AcceptReset   = "accept-reset"   // accepted, then reset
	AcceptStall   = "accept-stall"   // accepted, then no response until the client gives up
	AcceptCut     = "accept-cut"     // 200 with a truncated body
	AcceptHuge    = "accept-huge"    // 200 with a body of 1 GiB
	AcceptSlow    = "accept-slow"    // 200 with a body that never ends
	AcceptHTML    = "accept-html"    // 200 with an HTML page instead of JSON
	AcceptBomb    = "accept-bomb"    // 200 with 1 MiB of headers
	AcceptGarbage = "accept-garbage" // accepted, then bytes that are not HTTP
	AcceptSwitch  = "accept-switch"  // accepted, then 101, and the connection stays open
	AcceptHints   = "accept-hints"   // several informational responses, then 200
	AcceptTwice   = "accept-twice"   // 200, and a second 200 once anything else arrives on the connection
	EarlyReset    = "early-reset"    // the connection is reset before the message is read
)

// KeyCounts are the counts of a [Hostile] for one send key.
type KeyCounts struct {
	Calls   int `json:"calls"`
	Accepts int `json:"accepts"`
	Bodies  int `json:"bodies"` // distinct bodies

	id, to string
	bodies map[[sha256.Size]byte]bool
}

// Counts are the counts of a [Hostile].
type Counts struct {
	Calls             int                  `json:"calls"`
	Accepts           int                  `json:"accepts"`
	Lookups           int                  `json:"lookups"`
	FollowedRedirects int                  `json:"followed_redirects"` // requests to the target of a redirect
	Connections       int                  `json:"connections"`
	Keys              map[string]KeyCounts `json:"keys"`
}

// Control configures a [Hostile]. The zero value is an honest provider with a blind contract.
type Control struct {
	// Modes by recipient, "" for all others. Each call uses the next mode; the last one stays in effect.
	Modes map[string][]string `json:"modes"`
	// Lookups are the modes of lookups, by the recipient of the message that was sent under the key.
	Lookups    map[string][]string `json:"lookups"`
	LatencyMin time.Duration       `json:"latency_min"` // ns; the latency is uniform up to LatencyMax
	LatencyMax time.Duration       `json:"latency_max"`
	Idempotent bool                `json:"idempotent"` // a repeated key gets the same response and is not accepted again
}

// Hostile is a fake HTTP provider:
//
//	POST /send               receives a message
//	GET  /send?send_key=K    {"status": "accepted", "id": …}, or 404 with {"status": "not_found"}
//	PUT  /control            a [Control]
//	GET  /control            [Counts]
//	DELETE /control          resets all counts
//
// The zero value is an honest provider, ready for use.
type Hostile struct {
	mu          sync.Mutex
	control     Control
	calls       int
	accepts     int
	lookups     int
	redirects   int
	connections int
	keys        map[string]*KeyCounts
	last        *http.Request
	lastBody    []byte
	lastLookup  *http.Request
}

// Set replaces the configuration.
func (h *Hostile) Set(c Control) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control = c
}

// SetModes sets the modes for all recipients, one per call; the last one stays in effect.
func (h *Hostile) SetModes(modes ...string) { h.Set(Control{Modes: map[string][]string{"": modes}}) }

// Counts returns the counts so far.
func (h *Hostile) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := make(map[string]KeyCounts, len(h.keys))
	for key, t := range h.keys {
		keys[key] = KeyCounts{Calls: t.Calls, Accepts: t.Accepts, Bodies: len(t.bodies)}
	}
	return Counts{Calls: h.calls, Accepts: h.accepts, Lookups: h.lookups, FollowedRedirects: h.redirects, Connections: h.connections, Keys: keys}
}

// Last returns the request and the body of the last message.
func (h *Hostile) Last() (*http.Request, []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.lastBody
}

// ConnState counts connections. It is meant for the field of this name in [http.Server].
func (h *Hostile) ConnState(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.connections++
	}
}

// ServeHTTP serves the endpoints listed above. Any other request is counted as a followed redirect.
func (h *Hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "POST /send":
		h.receive(w, r)
	case "GET /send":
		h.lookup(w, r)
	case "PUT /control":
		var c Control
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.Set(c)
		w.WriteHeader(http.StatusNoContent)
	case "GET /control":
		writeJSON(w, h.Counts())
	case "DELETE /control":
		h.mu.Lock()
		h.calls, h.accepts, h.lookups, h.redirects, h.connections, h.keys = 0, 0, 0, 0, 0, nil
		h.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		h.mu.Lock()
		h.redirects++
		h.mu.Unlock()
		writeJSON(w, map[string]string{"id": "redirected"})
	}
}

// receive reads the whole message, counts it, and responds as its mode says.
func (h *Hostile) receive(w http.ResponseWriter, r *http.Request) {
	if h.early() {
		h.count(r, r.Header.Get("webhook-id"), "", nil)
		hangUp(w, true, "")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		return
	}
	var message struct {
		SendKey string `json:"send_key"`
		To      string `json:"to"`
	}
	_ = json.Unmarshal(body, &message)
	key := r.Header.Get("webhook-id")
	if key == "" {
		key = message.SendKey
	}
	mode, id, wait := h.count(r, key, message.To, body)
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		}
	}
	respond(w, r, mode, id)
}

// early reports whether the next message to any recipient is one for [EarlyReset].
func (h *Hostile) early() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	modes := h.control.Modes[""]
	return len(modes) > 0 && modes[0] == EarlyReset
}

func (h *Hostile) count(r *http.Request, key, to string, body []byte) (mode, id string, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	h.last, h.lastBody = r, body
	if h.keys == nil {
		h.keys = map[string]*KeyCounts{}
	}
	t := h.keys[key]
	if t == nil {
		t = &KeyCounts{bodies: map[[sha256.Size]byte]bool{}}
		h.keys[key] = t
	}
	t.Calls++
	t.to = to
	t.bodies[sha256.Sum256(body)] = true

	mode = next(&h.control.Modes, to)
	repeat := h.control.Idempotent && t.Accepts > 0
	if (mode == OK || strings.HasPrefix(mode, "accept-")) && !repeat {
		h.accepts++
		t.Accepts++
		t.id = "fake-" + strconv.Itoa(h.accepts)
	}
	wait = h.control.LatencyMin
	if spread := h.control.LatencyMax - wait; spread > 0 {
		wait += rand.N(spread)
	}
	return mode, t.id, wait
}

// next returns the mode of a call and removes it from its list, unless it is the last one.
func next(modes *map[string][]string, to string) string {
	if _, ok := (*modes)[to]; !ok {
		to = ""
	}
	list := (*modes)[to]
	if len(list) == 0 {
		return OK
	}
	if len(list) > 1 {
		*modes = maps.Clone(*modes)
		(*modes)[to] = list[1:]
	}
	return list[0]
}

// respond writes the response of a mode.
func respond(w http.ResponseWriter, r *http.Request, mode, id string) {
	name, argument, _ := strings.Cut(mode, ":")
	header := w.Header()
	switch name {
	case "status", "accept-status":
		status, _ := strconv.Atoi(argument)
		header.Set("Content-Type", "application/json")
		header.Set("X-Request-Id", "req-"+argument)
		w.WriteHeader(status)
		if status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
			fmt.Fprintf(w, `{"code": "fake_%d"}`, status)
		}
	case "throttle":
		header.Set("Retry-After", argument)
		w.WriteHeader(http.StatusTooManyRequests)
	case "busy":
		header.Set("Retry-After", argument)
		w.WriteHeader(http.StatusServiceUnavailable)
	case "redirect":
		status, _ := strconv.Atoi(argument)
		header.Set("Location", "/elsewhere")
		w.WriteHeader(status)
	case Close, AcceptClose:
		hangUp(w, false, "")
	case Reset, AcceptReset:
		hangUp(w, true, "")
	case AcceptGarbage:
		hangUp(w, false, "* OK IMAP4rev1 ready\r\n\r\n")
	case AcceptSwitch:
		keepOpen(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "")
	case AcceptHints:
		for _, status := range []int{http.StatusProcessing, http.StatusEarlyHints, 199} {
			w.WriteHeader(status)
		}
		writeJSON(w, map[string]string{"id": id})
	case AcceptTwice:
		answer := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"id\":\"1\"}"
		keepOpen(w, answer, answer)
	case AcceptStall:
		<-r.Context().Done()
	case AcceptCut:
		header.Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"id": "`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case AcceptSlow:
		_, _ = io.WriteString(w, `{"id": "`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case AcceptHuge:
		chunk := []byte(strings.Repeat("a", 64<<10))
		for range (1 << 30) / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	case AcceptBomb:
		header.Set("X-Bomb", strings.Repeat("b", 1<<20))
	case AcceptHTML:
		header.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>Sign in</body></html>")
	default:
		writeJSON(w, map[string]string{"id": id})
	}
}

// keepOpen writes text to the connection as it is, and keeps the connection until the client closes it. Once anything
// arrives on it, later is written as well.
func keepOpen(w http.ResponseWriter, text, later string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		_, _ = io.WriteString(conn, later)
	}
	_, _ = io.Copy(io.Discard, conn)
}

// hangUp writes text to the connection as it is, without an HTTP response, and closes the connection.
func hangUp(w http.ResponseWriter, reset bool, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, text)
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
