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

// shape is the version of the message's shape. Change it with any byte of it.
const shape = "smtp/1"

const (
	maxRead   = 1 << 20 // bytes of one session that are read; certificates are among them
	dialLimit = 10 * time.Second
	quitLimit = time.Second // for a goodbye that changes nothing
)

// Security is how a session is protected.
type Security string

const (
	// StartTLS : upgraded before anything is said; refused where the server cannot. The default.
	StartTLS Security = "starttls"
	// Implicit : TLS from the first byte (RFC 8314).
	Implicit Security = "implicit"
	// Plain : none. Only to a loopback address.
	Plain Security = "none"
)

// Config is one submission server.
type Config struct {
	Name     string
	Host     string
	Port     int // 587; 465 where TLS is implicit
	Security Security
	Username string // empty to send without authentication
	Password string
	From     string         // "Ada <ada@example.org>" or an address alone
	Hello    string         // the name we give; the domain of From
	RootCAs  *x509.CertPool // nil for the system's
	Now      func() time.Time
}

// Provider submits to one server.
type Provider struct {
	Config
	from  netmail.Address
	route ledger.Route
}

// New checks the configuration.
func New(c Config) (*Provider, error) {
	switch c.Security {
	case "":
		c.Security = StartTLS
	case StartTLS, Implicit:
	case Plain:
		if ip := net.ParseIP(c.Host); c.Host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return nil, errors.New("smtp: a session without TLS is only for a loopback address")
		}
	default:
		return nil, fmt.Errorf("smtp: no such security: %q", c.Security)
	}
	if c.Port == 0 {
		c.Port = map[Security]int{StartTLS: 587, Implicit: 465, Plain: 587}[c.Security]
	}
	from, err := netmail.ParseAddress(c.From)
	if err != nil || !plainAddress(from.Address) || !printable(from.Name) || !ascii(from.Address) {
		return nil, errors.New("smtp: from is not one plain address, with or without a name")
	}
	if c.Hello == "" {
		_, c.Hello, _ = strings.Cut(from.Address, "@")
	}
	if c.Host == "" || !printable(c.Host+c.Hello) || strings.Contains(c.Hello, " ") || c.Port < 1 || c.Port > 65535 {
		return nil, errors.New("smtp: host, port or hello cannot be used")
	}
	if (c.Username == "") != (c.Password == "") {
		return nil, errors.New("smtp: username and password come together")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	contract := ledger.Contract{Kind: ledger.Blind}
	return &Provider{Config: c, from: *from, route: ledger.Route{
		Provider: c.Name, Contract: contract,
		Fingerprint: provider.Fingerprint("smtp", c.Username, c.address(), string(c.Security), from.String(),
			provider.ContractWord(contract), shape),
	}}, nil
}

func (c Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// Route is the server as configured. Its contract is blind: SMTP promises nothing about repeats.
func (p *Provider) Route() ledger.Route { return p.route }

// Send submits the shipment once.
func (p *Provider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	message, err := compose(s, p.from, p.Now())
	if err != nil {
		return judge(ctx, hello, err)
	}
	if outbound.Over(ctx) {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", p.address())
	if err != nil {
		return judge(ctx, hello, err)
	}
	// Closing is what ends a session, for whatever reason. Nothing else may: a command written after
	// an unfinished message would finish it (textproto ends an open DotWriter first).
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	at, text, err := p.submit(ctx, &bounded{Conn: conn, left: maxRead}, s.Recipient, message)
	if err != nil {
		return judge(ctx, at, err)
	}
	return ledger.Outcome{
		Result: ledger.ResultAccepted, Status: 250, Code: provider.Word(enhancedCode.FindString(text)),
		Receipt: receiptIn(text), Cause: outbound.CauseStatus,
	}
}

// submit takes the steps of a session, and returns the one it ended at, with the text of the acceptance.
func (p *Provider) submit(ctx context.Context, conn net.Conn, to string, message []byte) (at step, text string, err error) {
	client, err := p.open(conn)
	if err != nil {
		return hello, "", err
	}
	if known, _ := client.Extension("SMTPUTF8"); !known && !ascii(to) {
		return recipient, "", errRecipient
	}
	if err := client.Mail("<" + p.from.Address + ">"); err != nil {
		return sender, "", err
	}
	if err := client.Rcpt("<" + to + ">"); err != nil {
		return recipient, "", err
	}
	w, err := client.Data()
	if err != nil {
		return body, "", err
	}
	if _, err := w.Write(message); err != nil {
		return body, "", err
	}
	if err := ctx.Err(); err != nil {
		return body, "", err
	}
	// Close writes the dot, and reads the reply to it.
	var reply *textproto.Error
	switch err := w.Close(); {
	case errors.As(err, &reply) && reply.Code/100 == 2:
		text = reply.Msg // accepted in other words than 250
	case err != nil:
		return dot, "", err
	default:
		if closer, ok := w.(*smtp.DataCloser); ok {
			text = closer.ServerResponse()
		}
	}
	if client.UpdateDeadline(quitLimit) == nil {
		_ = client.Quit()
	}
	return dot, text, nil
}

// open greets the server, secures the session and authenticates.
func (p *Provider) open(conn net.Conn) (*smtp.Client, error) {
	settings := &tls.Config{ServerName: p.Host, RootCAs: p.RootCAs, MinVersion: tls.VersionTLS12}
	if p.Security == Implicit {
		conn = tls.Client(conn, settings)
	}
	client, err := smtp.NewClient(conn, p.Host)
	if err != nil {
		return nil, err
	}
	if err := client.Hello(p.Hello); err != nil {
		return nil, err
	}
	if p.Security == StartTLS {
		if offered, _ := client.Extension("STARTTLS"); !offered {
			return nil, errSetup
		}
		if err := client.StartTLS(settings); err != nil {
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
			return client, client.Auth(smtp.PlainAuth("", p.Username, p.Password, p.Host, false))
		case "LOGIN":
			return client, client.Auth(smtp.LoginAuth(p.Username, p.Password, p.Host, false))
		}
	}
	return nil, errSetup
}

// bounded ends a session whose peer says too much.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("smtp: the server says too much")
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
