package rehearsal

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	sendPath   = "/send"
	lookupPath = "/lookup"
)

// call is one send request to the provider.
type call struct {
	Key      string // the send key in the body
	Body     [sha256.Size]byte
	Accepted bool // it became a message to the recipient, not a recognised repeat
	Receipt  string
}

// fakeProvider is a provider on loopback with one contract. It accepts the first message, and does not answer while the
// caller waits. It refuses the recipients of the expected dead letters as gone until startAccepting is called.
type fakeProvider struct {
	contract  string
	reminder  string // of the first part; others, except for the dead letters, are left over from earlier rehearsals
	url       string
	firstCall chan struct{} // closed when the first message is accepted
	server    *http.Server

	mu           sync.Mutex
	calls        []call
	receipts     map[string]string // by the key by which it recognises a repeat
	receiptCount int               // for new receipts
	lookups      int
	deadLetters  map[string][]call // by expected reminder
	accepting    bool
}

func newFakeProvider(contract, reminder string) (*fakeProvider, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("rehearse: the provider's listener: %w", err)
	}
	p := &fakeProvider{
		contract: contract, reminder: reminder, url: "http://" + listener.Addr().String(),
		firstCall: make(chan struct{}), receipts: map[string]string{}, deadLetters: map[string][]call{},
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST "+sendPath, p.send)
	routes.HandleFunc("GET "+lookupPath, p.lookup)
	p.server = &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(listener) }() // until close
	return p, nil
}

func (p *fakeProvider) close() { _ = p.server.Close() }

func (p *fakeProvider) send(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var message struct {
		SendKey    string `json:"send_key"`
		ReminderID string `json:"reminder_id"`
	}
	if err != nil || json.Unmarshal(raw, &message) != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	repeatKey := r.Header.Get("Idempotency-Key")
	if message.ReminderID != p.reminder {
		receipt, status := p.deadLetter(message.ReminderID, message.SendKey, repeatKey, raw)
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		answerJSON(w, map[string]string{"id": receipt})
		return
	}
	receipt, first := p.record(message.SendKey, repeatKey, raw)
	if first {
		<-r.Context().Done() // the caller has given up or ended
		return
	}
	answerJSON(w, map[string]string{"id": receipt})
}

// record records a call of the first part, and reports whether it is the first.
func (p *fakeProvider) record(key, repeatKey string, raw []byte) (receipt string, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.receive(key, repeatKey, raw)
	p.calls = append(p.calls, c)
	if first = len(p.calls) == 1; first {
		close(p.firstCall)
	}
	return c.Receipt, first
}

// receive is a call that is not refused: a new message, or a repeat if the contract recognises it.
func (p *fakeProvider) receive(key, repeatKey string, raw []byte) call {
	known := key
	if p.contract == Idempotent {
		known = repeatKey // the contract is to recognise the header
	}
	receipt, repeated := p.receipts[known]
	accepted := p.contract != Idempotent || known == "" || !repeated
	if accepted {
		p.receiptCount++
		receipt = fmt.Sprintf("receipt-%d", p.receiptCount)
		p.receipts[known] = receipt
	}
	return call{Key: key, Body: sha256.Sum256(raw), Accepted: accepted, Receipt: receipt}
}

// expect registers reminders whose addresses are gone.
func (p *fakeProvider) expect(reminders ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, reminder := range reminders {
		p.deadLetters[reminder] = nil
	}
}

// startAccepting makes the addresses of the dead letters exist again.
func (p *fakeProvider) startAccepting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepting = true
}

// deadLetter handles a call for another reminder than that of the first part.
func (p *fakeProvider) deadLetter(reminder, key, repeatKey string, raw []byte) (receipt string, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls, known := p.deadLetters[reminder]
	if !known {
		return "", http.StatusUnprocessableEntity
	}
	c, status := call{Key: key, Body: sha256.Sum256(raw)}, http.StatusGone
	if p.accepting {
		c, status = p.receive(key, repeatKey, raw), http.StatusOK
	}
	p.deadLetters[reminder] = append(calls, c)
	return c.Receipt, status
}

// callsFor returns the calls for a dead letter.
func (p *fakeProvider) callsFor(reminder string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.deadLetters[reminder]...)
}

func (p *fakeProvider) lookup(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.lookups++
	receipt, known := p.receipts[r.URL.Query().Get("send_key")]
	p.mu.Unlock()
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answerJSON(w, map[string]string{"status": "accepted", "id": receipt})
}

func answerJSON(w http.ResponseWriter, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the caller may have ended
}

// recorded returns the calls of the first part and the number of lookups.
func (p *fakeProvider) recorded() (calls []call, lookups int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]call(nil), p.calls...), p.lookups
}

// awaitCall waits for the first message.
func (p *fakeProvider) awaitCall(ctx context.Context, within time.Duration) error {
	select {
	case <-p.firstCall:
		return nil
	case <-time.After(within):
		return fmt.Errorf("rehearse: the provider was not called within %s", formatDuration(within))
	case <-ctx.Done():
		return ctx.Err()
	}
}
