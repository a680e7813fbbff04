package blackbox

import (
	"bufio"
	"bytes"
	"context"
	big "encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// write is what a gateway commits in one statement.
type write string

const (
	noWrite write = ""
	create  write = "create"
	claim   write = "claim"  // of an entry that was there before
	settle  write = "settle" // and every other write over an entry that is not a claim
)

// fate is what the network does to one write.
type fate int

const (
	carried     fate = iota
	replyLost        // it is committed, and the connection ends before the reply has come
	requestLost      // the connection ends before the commit is asked for
	replyHeld        // it is committed, and the reply waits until the test lets go
)

// cutter is a network between a gateway and PostgreSQL that reads just enough of what they say to part them
// at the one point that matters: after the server has said that a write is committed (its implicit
// transaction ends with ReadyForQuery), and before the gateway can know.
type cutter struct {
	url  string
	cuts atomic.Int64

	ctx  context.Context // ends with the test
	held chan struct{}   // told of each reply that is held
	let  chan struct{}   // closed when held replies may go

	mu   sync.Mutex
	plan func(w write) fate // under mu
}

// cutting puts a cutter before a PostgreSQL. Its plan is asked for each write, one at a time.
func cutting(t *testing.T, database string, plan func(w write) fate) *cutter {
	t.Helper()
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ctx: t.Context(), held: make(chan struct{}, 64), let: make(chan struct{}), plan: plan}
	t.Cleanup(func() { _ = listener.Close() })
	target := address.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(client, target)
		}
	}()
	address.Host = listener.Addr().String()
	c.url = address.String()
	return c
}

func (c *cutter) fateOf(w write) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan(w)
}

// plans replaces the plan.
func (c *cutter) plans(plan func(w write) fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = plan
}

// holds waits until one more reply is held.
func (c *cutter) holds(t *testing.T) {
	t.Helper()
	select {
	case <-c.held:
	case <-time.After(30 * time.Second):
		t.Fatal("no write has been committed")
	}
}

func (c *cutter) carry(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(c.ctx, func() { _, _ = client.Close(), server.Close() })()
	s := &session{c: c, client: client, server: server, statements: map[string]write{}, answers: []answering{{}}}
	go func() {
		defer server.Close()
		s.ask()
	}()
	s.answer()
}

// session is one connection.
type session struct {
	c              *cutter
	client, server net.Conn
	statements     map[string]write // by their names, as the gateway prepares them

	mu      sync.Mutex
	answers []answering // what the server has not yet answered to the end
}

// answering is what the server says up to its next ReadyForQuery. The first is its welcome.
type answering struct {
	to   write
	fate fate
}

// ask carries what the gateway says. What it asks for is committed once it has said Sync.
func (s *session) ask() {
	from := bufio.NewReader(s.client)
	if _, err := io.CopyN(s.server, from, greeting(from)); err != nil {
		return
	}
	asked := noWrite
	for {
		m, err := next(from)
		if err != nil {
			return
		}
		switch m[0] {
		case 'P': // Parse
			name, text, _ := strings.Cut(string(m[5:]), "\x00")
			s.statements[name] = writeOf(text)
		case 'B': // Bind
			if w := s.bound(m[5:]); w != noWrite {
				asked = w
			}
		case 'S', 'Q': // Sync, Query
			due := answering{to: asked}
			if asked != noWrite {
				due.fate = s.c.fateOf(asked)
			}
			if due.fate == requestLost {
				s.cut()
				return
			}
			s.mu.Lock()
			s.answers = append(s.answers, due)
			s.mu.Unlock()
			asked = noWrite
		}
		if _, err := s.server.Write(m); err != nil {
			return
		}
	}
}

// greeting is the length of the first message, which alone has no letter before it.
func greeting(from *bufio.Reader) int64 {
	length, err := from.Peek(4)
	if err != nil {
		return 0
	}
	return int64(big.BigEndian.Uint32(length))
}

// next is one whole message: a letter, its length, its body.
func next(from *bufio.Reader) ([]byte, error) {
	head, err := from.Peek(5)
	if err != nil {
		return nil, err
	}
	m := make([]byte, 1+int(big.BigEndian.Uint32(head[1:])))
	_, err = io.ReadFull(from, m)
	return m, err
}

// writeOf tells a write by the name that its statement bears.
func writeOf(statement string) write {
	switch {
	case strings.Contains(statement, "-- name: CreateEntry "):
		return create
	case strings.Contains(statement, "-- name: SwapEntry "):
		return settle
	}
	return noWrite
}

// bound tells what a Bind's statement writes; one that leaves an entry "sending" is a claim.
func (s *session) bound(body []byte) write {
	_, rest, _ := bytes.Cut(body, []byte{0})
	name, rest, _ := bytes.Cut(rest, []byte{0})
	w := s.statements[string(name)]
	if w == settle && bytes.Contains(rest, []byte("\x00\x00\x00\x07sending")) {
		return claim
	}
	return w
}

// answer carries what the server says. What it says to a write is kept back until it is known to be
// committed.
func (s *session) answer() {
	from := bufio.NewReader(s.server)
	var kept [][]byte
	wrote := false
	for {
		m, err := next(from)
		if err != nil {
			return
		}
		due := s.due(m[0] == 'Z')
		if due.fate == carried {
			if _, err := s.client.Write(m); err != nil {
				return
			}
			continue
		}
		kept = append(kept, m)
		switch m[0] {
		case 'C': // CommandComplete: whether the statement found what it was to write over
			wrote = string(m[5:]) == "SELECT 1\x00"
		case 'Z': // ReadyForQuery: it is committed
			if wrote && due.fate == replyHeld {
				s.c.held <- struct{}{}
				select {
				case <-s.c.let:
				case <-s.c.ctx.Done():
				}
			}
			lost := wrote && due.fate == replyLost
			if lost { // some of it may have come through, but never the end
				kept = kept[:int(s.c.cuts.Load())%len(kept)]
			}
			if _, err := s.client.Write(bytes.Join(kept, nil)); err != nil {
				return
			}
			if lost {
				s.cut()
				return
			}
			kept, wrote = nil, false
		}
	}
}

// due is what the server is answering to now; last ends it.
func (s *session) due(last bool) answering {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.answers) == 0 { // said without being asked
		return answering{}
	}
	due := s.answers[0]
	if last {
		s.answers = s.answers[1:]
	}
	return due
}

// cut ends the connection, by turns with a farewell and with a reset.
func (s *session) cut() {
	if s.c.cuts.Add(1)%2 == 0 {
		_ = s.client.(*net.TCPConn).SetLinger(0)
	}
	_, _ = s.client.Close(), s.server.Close()
}
