package providertest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Steps of an SMTP session at which a [Mail] can be made to misbehave.
const (
	AtConnect  = "CONNECT"
	AtHelo     = "EHLO"
	AtStartTLS = "STARTTLS"
	AtAuth     = "AUTH"
	AtFrom     = "MAIL"
	AtTo       = "RCPT"
	AtData     = "DATA" // the command
	AtBody     = "BODY" // in the middle of the message, after its first line was read
	AtDot      = "."
	AtQuit     = "QUIT"
)

// What a [Mail] can do at a step, besides sending a given reply such as "451 4.7.1 later". The two named accept are
// for the final dot, and accept the message first.
const (
	Drop       = "drop"
	Hang       = "hang"
	AcceptDrop = "accept-drop"
	AcceptHang = "accept-hang"
	Flood      = "flood" // sends a line that never ends
)

// Mail is a fake SMTP server. Set its fields before [Mail.Serve].
type Mail struct {
	Script     map[string]string // by step; a step without an entry succeeds
	Implicit   bool              // TLS from the first byte
	NoStartTLS bool
	Mechanisms string // of AUTH; default "PLAIN LOGIN"
	UTF8       bool   // advertises SMTPUTF8

	mu       sync.Mutex
	sessions int
	dots     int
	messages []Message
	tls      *tls.Config
	roots    *x509.CertPool
	done     chan struct{}
	hung     chan struct{}
}

// Message is a message that a [Mail] accepted.
type Message struct {
	From, To string
	Data     string // with dot-stuffing removed and lines ending in LF
	TLS      bool
}

// Serve runs the server on a loopback address until the test ends, and returns the address. Hanging sessions end with
// the test.
func (m *Mail) Serve(t testing.TB) string {
	t.Helper()
	// The certificate of net/http/httptest is valid for 127.0.0.1.
	web := httptest.NewTLSServer(nil)
	m.tls = &tls.Config{Certificates: web.TLS.Certificates}
	m.roots = x509.NewCertPool()
	m.roots.AddCert(web.Certificate())
	web.Close()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.done, m.hung = make(chan struct{}), make(chan struct{}, 100)
	t.Cleanup(func() {
		close(m.done)
		listener.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.sessions++
			m.mu.Unlock()
			if tcp, ok := conn.(*net.TCPConn); ok && m.Script[AtBody] != "" {
				_ = tcp.SetReadBuffer(16 << 10) // so that a large message does not fit into the unread buffer
			}
			go func() {
				defer conn.Close()
				(&session{Mail: m, raw: conn}).run()
			}()
		}
	}()
	return listener.Addr().String()
}

// Roots returns a pool with the server's certificate.
func (m *Mail) Roots() *x509.CertPool { return m.roots }

// Hung returns a channel that receives a value whenever a session starts to hang.
func (m *Mail) Hung() <-chan struct{} { return m.hung }

// Seen returns the number of sessions, the number of messages ended by their final dot, and the accepted messages.
func (m *Mail) Seen() (sessions, dots int, accepted []Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions, m.dots, append([]Message(nil), m.messages...)
}

// session is one connection to a Mail.
type session struct {
	*Mail
	raw      net.Conn
	text     *textproto.Conn
	secure   bool
	from, to string
}

func (s *session) run() {
	conn := s.raw
	if s.Implicit {
		conn = s.startTLS()
	}
	s.text = textproto.NewConn(conn)
	if !s.play(AtConnect, "220 fake ESMTP") {
		return
	}
	for {
		line, err := s.text.ReadLine()
		if err != nil {
			return
		}
		command, rest, _ := strings.Cut(line, " ")
		if !s.handle(strings.ToUpper(command), rest) {
			return
		}
	}
}

// startTLS returns the server side of a TLS connection over the raw one.
func (s *session) startTLS() net.Conn {
	s.secure = true
	return tls.Server(s.raw, s.tls)
}

// handle executes one command and reports whether the session continues.
func (s *session) handle(command, rest string) bool {
	switch command {
	case AtHelo:
		return s.play(AtHelo, s.greeting())
	case AtStartTLS:
		if !s.play(AtStartTLS, "220 go ahead") {
			return false
		}
		s.text = textproto.NewConn(s.startTLS())
		return true
	case AtAuth:
		if strings.HasPrefix(strings.ToUpper(rest), "LOGIN") {
			for _, prompt := range []string{"334 VXNlcm5hbWU6", "334 UGFzc3dvcmQ6"} {
				if !s.say(prompt) {
					return false
				}
				if _, err := s.text.ReadLine(); err != nil {
					return false
				}
			}
		}
		return s.play(AtAuth, "235 2.7.0 welcome")
	case AtFrom:
		s.from = rest
		return s.play(AtFrom, "250 2.1.0 ok")
	case AtTo:
		s.to = rest
		return s.play(AtTo, "250 2.1.5 ok")
	case AtData:
		return s.data()
	case AtQuit:
		s.play(AtQuit, "221 2.0.0 bye")
		return false
	case "RSET", "NOOP":
		return s.say("250 ok")
	default:
		return s.say("502 5.5.2 unknown")
	}
}

func (s *session) greeting() string {
	lines := []string{"250-fake", "250-ENHANCEDSTATUSCODES", "250-8BITMIME"}
	if !s.secure && !s.NoStartTLS {
		lines = append(lines, "250-STARTTLS")
	}
	if s.UTF8 {
		lines = append(lines, "250-SMTPUTF8")
	}
	mechanisms := s.Mechanisms
	if mechanisms == "" {
		mechanisms = "PLAIN LOGIN"
	}
	return strings.Join(append(lines, "250 AUTH "+mechanisms), "\r\n")
}

func (s *session) data() bool {
	const proceed = "354 go ahead"
	if !s.play(AtData, proceed) {
		return false
	}
	if reply := s.Script[AtData]; reply != "" {
		return true // rejected: the next command follows
	}
	if s.Script[AtBody] != "" {
		_, _ = s.text.ReadLine()
		return s.play(AtBody, "")
	}
	body, err := io.ReadAll(s.text.DotReader())
	if err != nil {
		return false
	}
	action := s.Script[AtDot]
	accept := action == "" || action[0] == '2' || strings.HasPrefix(action, "accept-")
	s.mu.Lock()
	s.dots++
	if accept {
		s.messages = append(s.messages, Message{From: s.from, To: s.to, Data: string(body), TLS: s.secure})
	}
	number := len(s.messages)
	s.mu.Unlock()
	return s.play(AtDot, "250 2.0.0 Ok: queued as Q"+strconv.Itoa(number))
}

// play does what the script says at a step, or sends the reply of success. It reports whether the session continues.
func (s *session) play(step, success string) bool {
	switch action := s.Script[step]; action {
	case "":
		return s.say(success)
	case Drop, AcceptDrop:
		return false
	case Hang, AcceptHang:
		s.hung <- struct{}{}
		<-s.done
		return false
	case Flood:
		chunk := strings.Repeat("2", 64<<10)
		for {
			if _, err := io.WriteString(s.text.W, chunk); err != nil {
				return false
			}
		}
	default:
		return s.say(action)
	}
}

func (s *session) say(reply string) bool {
	w := bufio.NewWriter(s.text.W)
	_, _ = w.WriteString(reply + "\r\n")
	return w.Flush() == nil && s.text.W.Flush() == nil
}
