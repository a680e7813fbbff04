package blackbox

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// startAbsentProvider reserves the address of a provider that is down: whoever dials it is refused until open
// is called.
func startAbsentProvider(t *testing.T) (_ *provider, open func()) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "provider")
	t.Cleanup(func() { _ = socket.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	return &provider{t: t, address: at.String()}, func() {
		t.Helper()
		if err := syscall.Listen(fd, 128); err != nil {
			t.Fatal(err)
		}
		listener, err := net.FileListener(socket)
		if err != nil {
			t.Fatal(err)
		}
		hostile := &providertest.Hostile{}
		server := &http.Server{Handler: hostile, ConnState: hostile.ConnState}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
	}
}

// ownPostgres is a PostgreSQL server that belongs to one test. A relay in front of it keeps its address
// across crashes, and can cut it off.
type ownPostgres struct {
	t      *testing.T
	dir    string
	server *pgserver.Server
	relay  net.Listener

	mu     sync.Mutex
	target string // empty while the server is down
	silent bool   // accepts all data, and forwards none
	conns  map[net.Conn]bool
}

// newOwnPostgres starts a server and migrates it with the binary.
func newOwnPostgres(t *testing.T) *ownPostgres {
	t.Helper()
	d := &ownPostgres{t: t, dir: t.TempDir(), conns: map[net.Conn]bool{}}
	var err error
	if d.relay, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go d.accept()
	t.Cleanup(func() {
		_ = d.relay.Close()
		_ = d.server.Stop()
	})
	d.restart()
	c := configure(d.url(), &provider{address: "127.0.0.1:1"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	return d
}

func (d *ownPostgres) url() string {
	return "postgres://postgres@" + d.relay.Addr().String() + "/postgres?sslmode=disable"
}

// crash ends the server as a power cut would.
func (d *ownPostgres) crash() {
	d.t.Helper()
	d.mu.Lock()
	d.target = ""
	d.mu.Unlock()
	if err := d.server.Kill(); err != nil {
		d.t.Fatal(err)
	}
	d.closeConnections()
}

// restart starts the server on its data directory.
func (d *ownPostgres) restart() {
	d.t.Helper()
	server, err := pgserver.Start(d.dir, true)
	if err != nil {
		d.t.Fatal(err)
	}
	at, err := url.Parse(server.URL)
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = server
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = at.Host
}

// setSilent makes the relay discard everything, or forward it again. Discarded data are lost: connections
// that wait for them are closed.
func (d *ownPostgres) setSilent(on bool) {
	d.mu.Lock()
	d.silent = on
	d.mu.Unlock()
	if !on {
		d.closeConnections()
	}
}

func (d *ownPostgres) closeConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.conns {
		_ = conn.Close()
	}
	clear(d.conns)
}

func (d *ownPostgres) accept() {
	for {
		conn, err := d.relay.Accept()
		if err != nil {
			return
		}
		go d.forward(conn)
	}
}

// forward copies data in both directions. Both connections end when either does.
func (d *ownPostgres) forward(client net.Conn) {
	d.mu.Lock()
	target, silent := d.target, d.silent
	d.conns[client] = true
	d.mu.Unlock()
	defer client.Close()
	if silent {
		_, _ = io.Copy(io.Discard, client)
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.conns[server] = true
	d.mu.Unlock()
	go func() {
		defer server.Close()
		_, _ = io.Copy(silenceableWriter{d, server}, client)
	}()
	defer server.Close()
	_, _ = io.Copy(silenceableWriter{d, client}, server)
}

// silenceableWriter discards what is written while the relay is silent.
type silenceableWriter struct {
	d  *ownPostgres
	to net.Conn
}

func (g silenceableWriter) Write(p []byte) (int, error) {
	g.d.mu.Lock()
	silent := g.d.silent
	g.d.mu.Unlock()
	if silent {
		return len(p), nil
	}
	return g.to.Write(p)
}
