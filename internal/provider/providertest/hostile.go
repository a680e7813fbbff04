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

// Modes of a [Hostile] that take no argument. Those named accept count the message as taken before they
// misbehave. Besides these there are status:NNN and accept-status:NNN, throttle:VALUE (429 with that
// Retry-After), busy:VALUE (503 with it) and redirect:NNN.
const (
	OK            = "ok"
	Close         = "close"          // the connection is closed unanswered, nothing was taken
	Reset         = "reset"          // the same with a reset
	AcceptClose   = "accept-close"   // taken, then closed unanswered
	AcceptReset   = "accept-reset"   // taken, then reset
	AcceptStall   = "accept-stall"   // taken, then silence until the caller gives up
	AcceptCut     = "accept-cut"     // 200, and the body breaks off
	AcceptHuge    = "accept-huge"    // 200 with a GiB of body
	AcceptSlow    = "accept-slow"    // 200, and the body never ends
	AcceptHTML    = "accept-html"    // 200 with a page instead of JSON
	AcceptBomb    = "accept-bomb"    // 200 with a MiB of header
	AcceptGarbage = "accept-garbage" // taken, then bytes that are no HTTP
)

// Tally is what a [Hostile] saw under one send key.
type Tally struct {
	Calls   int `json:"calls"`
	Accepts int `json:"accepts"`
	Bodies  int `json:"bodies"` // distinct ones

	id, to string
	bodies map[[sha256.Size]byte]bool
}

// Counts is what a [Hostile] saw.
type Counts struct {
	Calls       int              `json:"calls"`
	Accepts     int              `json:"accepts"`
	Asks        int              `json:"asks"`   // look-ups
	Strays      int              `json:"strays"` // requests to where a redirect led
	Connections int              `json:"connections"`
	Keys        map[string]Tally `json:"keys"`
}

// Control is what a [Hostile] is told; fields that are left out stand for an honest, blind provider.
type Control struct {
	// Modes by recipient, "" for everybody else: each call takes the next, and the last one stays.
	Modes map[string][]string `json:"modes"`
	// Lookups are the modes of questions, by the recipient of what was sent under their key.
	Lookups    map[string][]string `json:"lookups"`
	LatencyMin time.Duration       `json:"latency_min"` // ns, drawn evenly up to LatencyMax
	LatencyMax time.Duration       `json:"latency_max"`
	Idempotent bool                `json:"idempotent"` // a key once taken is answered as before, and not taken again
}

// Hostile is a fake HTTP provider:
//
//	POST /send               takes a message
//	GET  /send?send_key=K    {"status": "accepted", "id": …}, or 404 with {"status": "not_found"}
//	PUT  /control            a [Control]
//	GET  /control            [Counts]
//	DELETE /control          forgets all counts
//
// The zero value is ready, and honest.
type Hostile struct {
	mu          sync.Mutex
	control     Control
	calls       int
	accepts     int
	asks        int
	strays      int
	connections int
	keys        map[string]*Tally
	last        *http.Request
	lastBody    []byte
	lastAsk     *http.Request
}

// Set replaces what the fake is told.
func (h *Hostile) Set(c Control) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.control = c
}

// Play makes the fake take these modes for everybody, one a call; the last one stays.
func (h *Hostile) Play(modes ...string) { h.Set(Control{Modes: map[string][]string{"": modes}}) }

// Counts is what was seen so far.
func (h *Hostile) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := make(map[string]Tally, len(h.keys))
	for key, t := range h.keys {
		keys[key] = Tally{Calls: t.Calls, Accepts: t.Accepts, Bodies: len(t.bodies)}
	}
	return Counts{Calls: h.calls, Accepts: h.accepts, Asks: h.asks, Strays: h.strays, Connections: h.connections, Keys: keys}
}

// Last is the last message's request and body.
func (h *Hostile) Last() (*http.Request, []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.lastBody
}

// ConnState counts connections; it is for the server's hook of that name.
func (h *Hostile) ConnState(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.connections++
	}
}

// ServeHTTP serves the surface named above. Anything else is where a redirect led: a stray.
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
		h.calls, h.accepts, h.asks, h.strays, h.connections, h.keys = 0, 0, 0, 0, 0, nil
		h.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		h.mu.Lock()
		h.strays++
		h.mu.Unlock()
		writeJSON(w, map[string]string{"id": "stray"})
	}
}

// receive reads the whole message, counts it, and then does what its mode says.
func (h *Hostile) receive(w http.ResponseWriter, r *http.Request) {
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
	answer(w, r, mode, id)
}

func (h *Hostile) count(r *http.Request, key, to string, body []byte) (mode, id string, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	h.last, h.lastBody = r, body
	if h.keys == nil {
		h.keys = map[string]*Tally{}
	}
	t := h.keys[key]
	if t == nil {
		t = &Tally{bodies: map[[sha256.Size]byte]bool{}}
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

// next is the mode of a call, which is thereby used up unless it is the last.
func next(scripts *map[string][]string, to string) string {
	if _, own := (*scripts)[to]; !own {
		to = ""
	}
	script := (*scripts)[to]
	if len(script) == 0 {
		return OK
	}
	if len(script) > 1 {
		*scripts = maps.Clone(*scripts)
		(*scripts)[to] = script[1:]
	}
	return script[0]
}

func answer(w http.ResponseWriter, r *http.Request, mode, id string) {
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

// hangUp leaves a connection, after saying something that HTTP does not know.
func hangUp(w http.ResponseWriter, reset bool, words string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(conn, words)
	if tcp, ok := conn.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
