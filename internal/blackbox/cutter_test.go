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
	claim   write = "claim"  // of an existing entry
	settle  write = "settle" // and every other update of an entry that is not a claim
)

// fault is what the network does to one write.
type fault int

const (
	noFault     fault = iota
	replyLost         // it is committed, and the connection ends before the reply arrives
	requestLost       // the connection ends before the commit is requested
	replyHeld         // it is committed, and the reply is held until the test releases it
)

// cutter is a proxy between a gateway and PostgreSQL that reads just enough of the protocol to cut a
// connection at the one point that matters: after the server has confirmed that a write is committed (its
// implicit transaction ends with ReadyForQuery), and before the gateway can know.
type cutter struct {
	url  string
	cuts atomic.Int64

	ctx     context.Context // ends with the test
	held    chan struct{}   // receives a value for each reply that is held
	release chan struct{}   // closed when held replies may be forwarded

	mu   sync.Mutex
	plan func(w write) fault // under mu
}

// newCutter puts a cutter in front of a PostgreSQL. Its plan is called for each write, one at a time.
func newCutter(t *testing.T, database string, plan func(w write) fault) *cutter {
	t.Helper()
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ctx: t.Context(), held: make(chan struct{}, 64), release: make(chan struct{}), plan: plan}
	t.Cleanup(func() { _ = listener.Close() })
	target := address.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.forward(client, target)
		}
	}()
	address.Host = listener.Addr().String()
	c.url = address.String()
	return c
}

func (c *cutter) faultFor(w write) fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plan(w)
}

// setPlan replaces the plan.
func (c *cutter) setPlan(plan func(w write) fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = plan
}

// waitHeld waits until one more reply is held.
func (c *cutter) waitHeld(t *testing.T) {
	t.Helper()
	select {
	case <-c.held:
	case <-time.After(30 * time.Second):
		t.Fatal("no write has been committed")
	}
}

func (c *cutter) forward(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(c.ctx, func() { _, _ = client.Close(), server.Close() })()
	s := &session{c: c, client: client, server: server, statements: map[string]write{}, pending: []pendingReply{{}}}
	go func() {
		defer server.Close()
		s.forwardRequests()
	}()
	s.forwardReplies()
}

// session is one connection.
type session struct {
	c              *cutter
	client, server net.Conn
	statements     map[string]write // by their names, as the gateway prepares them

	mu      sync.Mutex
	pending []pendingReply // replies that the server has not yet completed
}

// pendingReply is the server's messages up to its next ReadyForQuery. The first is its startup reply.
type pendingReply struct {
	write write
	fault fault
}

// forwardRequests forwards the gateway's messages. A statement is committed once the gateway has sent Sync.
func (s *session) forwardRequests() {
	from := bufio.NewReader(s.client)
	if _, err := io.CopyN(s.server, from, startupLength(from)); err != nil {
		return
	}
	kind := noWrite
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		switch m[0] {
		case 'P': // Parse
			name, text, _ := strings.Cut(string(m[5:]), "\x00")
			s.statements[name] = writeKind(text)
		case 'B': // Bind
			if w := s.boundWrite(m[5:]); w != noWrite {
				kind = w
			}
		case 'S', 'Q': // Sync, Query
			due := pendingReply{write: kind}
			if kind != noWrite {
				due.fault = s.c.faultFor(kind)
			}
			if due.fault == requestLost {
				s.cut()
				return
			}
			s.mu.Lock()
			s.pending = append(s.pending, due)
			s.mu.Unlock()
			kind = noWrite
		}
		if _, err := s.server.Write(m); err != nil {
			return
		}
	}
}

// startupLength returns the length of the first message, the only one without a type byte.
func startupLength(from *bufio.Reader) int64 {
	length, err := from.Peek(4)
	if err != nil {
		return 0
	}
	return int64(big.BigEndian.Uint32(length))
}

// readMessage reads one whole message: a type byte, its length, its body.
func readMessage(from *bufio.Reader) ([]byte, error) {
	head, err := from.Peek(5)
	if err != nil {
		return nil, err
	}
	m := make([]byte, 1+int(big.BigEndian.Uint32(head[1:])))
	_, err = io.ReadFull(from, m)
	return m, err
}

// writeKind returns the kind of write by the name in the statement's comment.
func writeKind(statement string) write {
	switch {
	case strings.Contains(statement, "-- name: InsertEntry "):
		return create
	case strings.Contains(statement, "-- name: UpdateEntry "):
		return settle
	}
	return noWrite
}

// boundWrite returns the write that a Bind executes; one that leaves an entry "sending" is a claim.
func (s *session) boundWrite(body []byte) write {
	_, rest, _ := bytes.Cut(body, []byte{0})
	name, rest, _ := bytes.Cut(rest, []byte{0})
	w := s.statements[string(name)]
	if w == settle && bytes.Contains(rest, []byte("\x00\x00\x00\x07sending")) {
		return claim
	}
	return w
}

// forwardReplies forwards the server's messages. The reply to a write is buffered until it is known to be
// committed.
func (s *session) forwardReplies() {
	from := bufio.NewReader(s.server)
	var buffered [][]byte
	matched := false
	for {
		m, err := readMessage(from)
		if err != nil {
			return
		}
		due := s.current(m[0] == 'Z')
		if due.fault == noFault {
			if _, err := s.client.Write(m); err != nil {
				return
			}
			continue
		}
		buffered = append(buffered, m)
		switch m[0] {
		case 'C': // CommandComplete: whether the statement found the row it was to update
			matched = string(m[5:]) == "SELECT 1\x00"
		case 'Z': // ReadyForQuery: it is committed
			if matched && due.fault == replyHeld {
				s.c.held <- struct{}{}
				select {
				case <-s.c.release:
				case <-s.c.ctx.Done():
				}
			}
			lost := matched && due.fault == replyLost
			if lost { // some of it may have come through, but never the end
				buffered = buffered[:int(s.c.cuts.Load())%len(buffered)]
			}
			if _, err := s.client.Write(bytes.Join(buffered, nil)); err != nil {
				return
			}
			if lost {
				s.cut()
				return
			}
			buffered, matched = nil, false
		}
	}
}

// current returns the reply that the server is sending now; last completes it.
func (s *session) current(last bool) pendingReply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 { // an unsolicited message
		return pendingReply{}
	}
	due := s.pending[0]
	if last {
		s.pending = s.pending[1:]
	}
	return due
}

// cut ends the connection, alternately with FIN and with RST.
func (s *session) cut() {
	if s.c.cuts.Add(1)%2 == 0 {
		_ = s.client.(*net.TCPConn).SetLinger(0)
	}
	_, _ = s.client.Close(), s.server.Close()
}
