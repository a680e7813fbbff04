package smtp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// formatVersion is the version of the message format. Change it whenever any byte of the message changes.
const formatVersion = "smtp/1"

const (
	maxRead     = 1 << 20 // bytes read in one session, including certificates
	dialTimeout = 10 * time.Second
	quitTimeout = time.Second // for QUIT, which no longer affects the outcome
)

// Security is how a session is protected.
type Security string

const (
	// StartTLS upgrades the session to TLS before anything else is sent, and fails if the server does not support
	// it. It is the default.
	StartTLS Security = "starttls"
	// Implicit is TLS from the first byte (RFC 8314).
	Implicit Security = "implicit"
	// Plain is a session without TLS. It is allowed for a loopback address, and elsewhere where the configuration
	// says that it is intended.
	Plain Security = "none"
)

// Config configures a provider for one submission server.
type Config struct {
	Name     string
	Host     string
	Port     int // default 587, or 465 with implicit TLS
	Security Security
	Username string // empty to send without authentication
	Password string
	From     string           // "Ada <ada@example.org>" or just an address
	Helo     string           // host name in EHLO; default the domain of From
	Insecure bool             // Plain is intended also for another host
	RootCAs  *x509.CertPool   // nil for the system's roots
	Now      func() time.Time // default time.Now
}

// Provider submits mail to one server.
type Provider struct {
	Config
	from  netmail.Address
	route ledger.Route
}

// New checks the configuration and returns the provider.
func New(c Config) (*Provider, error) {
	switch c.Security {
	case "":
		c.Security = StartTLS
	case StartTLS, Implicit:
	case Plain:
		if ip := net.ParseIP(c.Host); !c.Insecure && c.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, errors.New("smtp: a session without TLS is allowed for a loopback address only, unless it is said to be intended")
		}
	default:
		return nil, fmt.Errorf("smtp: unknown security %q", c.Security)
	}
	if c.Port == 0 {
		c.Port = map[Security]int{StartTLS: 587, Implicit: 465, Plain: 587}[c.Security]
	}
	from, err := netmail.ParseAddress(c.From)
	if err != nil || !plainAddress(from.Address) || !printable(from.Name) || !ascii(from.Address) {
		return nil, errors.New("smtp: from must be a single plain address, with or without a display name")
	}
	if c.Helo == "" {
		_, c.Helo, _ = strings.Cut(from.Address, "@")
	}
	if c.Host == "" || !printable(c.Host+c.Helo) || strings.Contains(c.Helo, " ") || c.Port < 1 || c.Port > 65535 {
		return nil, errors.New("smtp: invalid host, port or helo")
	}
	if (c.Username == "") != (c.Password == "") {
		return nil, errors.New("smtp: username and password must be given together")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	contract := ledger.Contract{Kind: ledger.ContractBlind}
	return &Provider{Config: c, from: *from, route: ledger.Route{
		Provider: c.Name, Contract: contract,
		Fingerprint: provider.Fingerprint("smtp", c.Username, c.address(), string(c.Security), from.String(),
			provider.ContractPart(contract), formatVersion),
	}}, nil
}

func (c Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// Route returns the provider's route. Its contract is blind: SMTP promises nothing about repeated messages.
func (p *Provider) Route() ledger.Route { return p.route }

// Send submits the shipment once.
func (p *Provider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	message, err := compose(s, p.from, p.Now())
	if err != nil {
		return outcomeOf(ctx, stepHello, err)
	}
	if outbound.Expired(ctx) {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", p.address())
	if err != nil {
		return outcomeOf(ctx, stepHello, err)
	}
	// A failed session is ended only by closing the connection, never by a command: a command written after an
	// unfinished message would finish that message (textproto closes an open DotWriter first).
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	reached, text, err := p.submit(ctx, &limitedConn{Conn: conn, left: maxRead}, s.Recipient, message)
	if err != nil {
		return outcomeOf(ctx, reached, err)
	}
	return ledger.Outcome{
		Result: ledger.ResultAccepted, Status: 250, Code: provider.Printable(enhancedCode.FindString(text)),
		Receipt: receiptFrom(text), Cause: outbound.CauseStatus,
	}
}

// submit runs a session. It returns the step that the session reached, and the reply text of an acceptance.
func (p *Provider) submit(ctx context.Context, conn net.Conn, to string, message []byte) (reached step, text string, err error) {
	client, err := p.open(conn)
	if err != nil {
		return stepHello, "", err
	}
	if supported, _ := client.Extension("SMTPUTF8"); !supported && !ascii(to) {
		return stepRcpt, "", errRecipient
	}
	if err := client.Mail("<" + p.from.Address + ">"); err != nil {
		return stepMail, "", err
	}
	if err := client.Rcpt("<" + to + ">"); err != nil {
		return stepRcpt, "", err
	}
	w, err := client.Data()
	if err != nil {
		return stepData, "", err
	}
	if _, err := w.Write(message); err != nil {
		return stepData, "", err
	}
	if err := ctx.Err(); err != nil {
		return stepData, "", err
	}
	// Close writes the dot and reads the reply to it.
	var reply *textproto.Error
	switch err := w.Close(); {
	case errors.As(err, &reply) && reply.Code/100 == 2:
		text = reply.Msg // accepted with a code other than 250
	case err != nil:
		return stepDot, "", err
	default:
		if closer, ok := w.(*smtp.DataCloser); ok {
			text = closer.ServerResponse()
		}
	}
	if client.UpdateDeadline(quitTimeout) == nil {
		_ = client.Quit()
	}
	return stepDot, text, nil
}

// open starts a session: it sends EHLO, establishes TLS and authenticates.
func (p *Provider) open(conn net.Conn) (*smtp.Client, error) {
	tlsConfig := &tls.Config{ServerName: p.Host, RootCAs: p.RootCAs, MinVersion: tls.VersionTLS12}
	if p.Security == Implicit {
		conn = tls.Client(conn, tlsConfig)
	}
	client, err := smtp.NewClient(conn, p.Host)
	if err != nil {
		return nil, err
	}
	if err := client.Hello(p.Helo); err != nil {
		return nil, err
	}
	if p.Security == StartTLS {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return nil, errSetup
		}
		if err := client.StartTLS(tlsConfig); err != nil {
			return nil, err
		}
	}
	if p.Username == "" {
		return client, nil
	}
	_, offered := client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	for _, mechanism := range mechanisms {
		switch mechanism {
		case "PLAIN":
			return client, client.Auth(smtp.PlainAuth("", p.Username, p.Password, p.Host, p.Security == Plain)) // New has allowed it
		case "LOGIN":
			return client, client.Auth(smtp.LoginAuth(p.Username, p.Password, p.Host, p.Security == Plain))
		}
	}
	return nil, errSetup
}

// limitedConn is a connection that fails once more than left bytes have been read from it.
type limitedConn struct {
	net.Conn
	left int
}

func (c *limitedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("smtp: the server sent too much data")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
