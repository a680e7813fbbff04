package cli

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

// call is one request to the provider to send.
type call struct {
	Key     string // the send key in the body
	Body    [sha256.Size]byte
	Taken   bool // it became a message of its own to the person
	Receipt string
}

// stage is a provider on loopback that keeps the promise of one contract. It takes the first message that
// it is asked to send, and keeps its answer back for as long as the caller waits. The letters that it expects
// it refuses as gone until it is mended.
type stage struct {
	contract string
	reminder string // the one that it watches; besides its letters, others are left over from earlier rehearsals
	url      string
	taken    chan struct{} // closed when the first message is taken
	server   *http.Server

	mu       sync.Mutex
	calls    []call
	receipts map[string]string // by the key under which it recognises a repeat
	given    int               // receipts
	asked    int
	letters  map[string][]call // of the reminders that it expects
	mended   bool
}

func openStage(contract, reminder string) (*stage, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("rehearse: the provider's listener: %w", err)
	}
	s := &stage{
		contract: contract, reminder: reminder, url: "http://" + listener.Addr().String(),
		taken: make(chan struct{}), receipts: map[string]string{}, letters: map[string][]call{},
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST "+sendPath, s.send)
	routes.HandleFunc("GET "+lookupPath, s.lookUp)
	s.server = &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(listener) }() // until close
	return s, nil
}

func (s *stage) close() { _ = s.server.Close() }

func (s *stage) send(w http.ResponseWriter, r *http.Request) {
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
	if message.ReminderID != s.reminder {
		receipt, status := s.letter(message.ReminderID, message.SendKey, repeatKey, raw)
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		answerJSON(w, map[string]string{"id": receipt})
		return
	}
	receipt, first := s.take(message.SendKey, repeatKey, raw)
	if first {
		<-r.Context().Done() // whoever asked has given up, or is no more
		return
	}
	answerJSON(w, map[string]string{"id": receipt})
}

// take records a call, and tells whether it is the very first.
func (s *stage) take(key, repeatKey string, raw []byte) (receipt string, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.receive(key, repeatKey, raw)
	s.calls = append(s.calls, c)
	if first = len(s.calls) == 1; first {
		close(s.taken)
	}
	return c.Receipt, first
}

// receive is a call that is not refused: a message of its own, unless the contract is to recognise a repeat.
func (s *stage) receive(key, repeatKey string, raw []byte) call {
	known := key
	if s.contract == Idempotent {
		known = repeatKey // what is promised is to recognise the header
	}
	receipt, repeated := s.receipts[known]
	taken := s.contract != Idempotent || known == "" || !repeated
	if taken {
		s.given++
		receipt = fmt.Sprintf("receipt-%d", s.given)
		s.receipts[known] = receipt
	}
	return call{Key: key, Body: sha256.Sum256(raw), Taken: taken, Receipt: receipt}
}

// expect makes it know these reminders, each at an address that is gone.
func (s *stage) expect(reminders ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, reminder := range reminders {
		s.letters[reminder] = nil
	}
}

// mend brings the addresses back.
func (s *stage) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mended = true
}

// letter answers for a reminder other than the one that it watches.
func (s *stage) letter(reminder, key, repeatKey string, raw []byte) (receipt string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, known := s.letters[reminder]
	if !known {
		return "", http.StatusUnprocessableEntity
	}
	c, status := call{Key: key, Body: sha256.Sum256(raw)}, http.StatusGone
	if s.mended {
		c, status = s.receive(key, repeatKey, raw), http.StatusOK
	}
	s.letters[reminder] = append(calls, c)
	return c.Receipt, status
}

// got is what it was asked for a letter so far.
func (s *stage) got(reminder string) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.letters[reminder]...)
}

func (s *stage) lookUp(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked++
	receipt, known := s.receipts[r.URL.Query().Get("send_key")]
	s.mu.Unlock()
	if !known {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	answerJSON(w, map[string]string{"status": "accepted", "id": receipt})
}

func answerJSON(w http.ResponseWriter, body map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // to a caller that may be gone
}

// record is what it saw so far.
func (s *stage) record() (calls []call, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...), s.asked
}

// took waits for the first message.
func (s *stage) took(ctx context.Context, within time.Duration) error {
	select {
	case <-s.taken:
		return nil
	case <-time.After(within):
		return fmt.Errorf("rehearse: the provider was not called within %s", short(within))
	case <-ctx.Done():
		return ctx.Err()
	}
}
