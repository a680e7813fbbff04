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

	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// absent is a provider that is not there: its address is taken, and whoever dials it is refused until
// open is called.
func absent(t *testing.T) (_ *provider, open func()) {
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

// database is a PostgreSQL server of a test's own behind a relay, so that it keeps its address over
// crashes, and can be cut off.
type database struct {
	t      *testing.T
	dir    string
	server *pgserver.Server
	relay  net.Listener

	mu     sync.Mutex
	target string // empty while nobody is there
	silent bool   // takes everything, and passes nothing on
	open   map[net.Conn]bool
}

// private starts a server that has been migrated by the binary.
func private(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, dir: t.TempDir(), open: map[net.Conn]bool{}}
	var err error
	if d.relay, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go d.accept()
	t.Cleanup(func() {
		_ = d.relay.Close()
		_ = d.server.Stop()
	})
	d.back()
	c := configure(d.url(), &provider{address: "127.0.0.1:1"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	return d
}

func (d *database) url() string {
	return "postgres://postgres@" + d.relay.Addr().String() + "/postgres?sslmode=disable"
}

// crash ends the server as a power cut would.
func (d *database) crash() {
	d.t.Helper()
	d.mu.Lock()
	d.target = ""
	d.mu.Unlock()
	if err := d.server.Kill(); err != nil {
		d.t.Fatal(err)
	}
	d.hangUp()
}

// back starts the server over what is on its disk.
func (d *database) back() {
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

// silence makes the network swallow everything, or carry it again. What was swallowed is lost: those who
// waited for it are cut off.
func (d *database) silence(on bool) {
	d.mu.Lock()
	d.silent = on
	d.mu.Unlock()
	if !on {
		d.hangUp()
	}
}

func (d *database) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.open {
		_ = conn.Close()
	}
	clear(d.open)
}

func (d *database) accept() {
	for {
		conn, err := d.relay.Accept()
		if err != nil {
			return
		}
		go d.carry(conn)
	}
}

// carry passes on what two sides say. Both end with either.
func (d *database) carry(client net.Conn) {
	d.mu.Lock()
	target, silent := d.target, d.silent
	d.open[client] = true
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
	d.open[server] = true
	d.mu.Unlock()
	go func() {
		defer server.Close()
		_, _ = io.Copy(gagged{d, server}, client)
	}()
	defer server.Close()
	_, _ = io.Copy(gagged{d, client}, server)
}

// gagged swallows what is written while the network is silent.
type gagged struct {
	d  *database
	to net.Conn
}

func (g gagged) Write(p []byte) (int, error) {
	g.d.mu.Lock()
	silent := g.d.silent
	g.d.mu.Unlock()
	if silent {
		return len(p), nil
	}
	return g.to.Write(p)
}
