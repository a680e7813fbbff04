package smtp_test

import (
	"context"
	"encoding/json"
	"net"
	netmail "net/mail"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider/providertest"
	"github.com/sendonce/sendonce/internal/provider/smtp"
)

var now = time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)

// open starts the fake and returns a provider for it, with the given changes to its configuration.
func open(t *testing.T, m *providertest.Mail, changes ...func(*smtp.Config)) *smtp.Provider {
	t.Helper()
	host, port, err := net.SplitHostPort(m.Serve(t))
	if err != nil {
		t.Fatal(err)
	}
	c := smtp.Config{
		Name: "mail", Host: host, Username: "u", Password: "s3cret", From: "Grüße <support@example.org>",
		RootCAs: m.Roots(), Now: func() time.Time { return now },
	}
	c.Port, _ = strconv.Atoi(port)
	for _, change := range changes {
		change(&c)
	}
	p, err := smtp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func send(t *testing.T, p *smtp.Provider, s ledger.Shipment, limit time.Duration) ledger.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return p.Send(ctx, s)
}

// large returns a shipment that no buffer can hold, so that the peer can disconnect in the middle of it.
func large() ledger.Shipment {
	s := providertest.Shipment(1)
	s.Content = []byte(`{"subject": "s", "text": "` + strings.Repeat("0123456789", 500<<10) + `"}`)
	return s
}

func TestSend_EveryConfiguredSecurity(t *testing.T) {
	for name, test := range map[string]struct {
		server *providertest.Mail
		change func(*smtp.Config)
		tls    bool
	}{
		"starttls":          {change: func(*smtp.Config) {}, tls: true},
		"implicit":          {server: &providertest.Mail{Implicit: true}, change: func(c *smtp.Config) { c.Security = smtp.Implicit }, tls: true},
		"login":             {server: &providertest.Mail{Mechanisms: "CRAM-MD5 LOGIN"}, change: func(*smtp.Config) {}, tls: true},
		"no authentication": {change: func(c *smtp.Config) { c.Username, c.Password = "", "" }, tls: true},
		"loopback":          {change: func(c *smtp.Config) { c.Security = smtp.Plain }},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.server
			if m == nil {
				m = &providertest.Mail{}
			}
			o := send(t, open(t, m, test.change), providertest.Shipment(1), time.Minute)
			want := ledger.Outcome{Result: ledger.ResultAccepted, Status: 250, Code: "2.0.0", Receipt: "Q1", Cause: "status"}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Fatal(diff)
			}
			sessions, dots, messages := m.Seen()
			if sessions != 1 || dots != 1 || len(messages) != 1 || messages[0].TLS != test.tls ||
				!strings.HasPrefix(messages[0].From, "FROM:<support@example.org>") || messages[0].To != "TO:<ada@example.org>" {
				t.Errorf("%d sessions, %d dots, %+v", sessions, dots, messages)
			}
		})
	}
}

func TestSend_MailHasContentOfReminder(t *testing.T) {
	m := &providertest.Mail{}
	p := open(t, m)
	s := providertest.Shipment(1)
	s.Content, _ = json.Marshal(map[string]string{
		"subject": "Ihr Platz läuft ab", "text": "bis 09:10\r\n.\r\nQUIT\n" + strings.Repeat("x", 2000) + "\rende", "html": "<p>bis</p>",
	})
	for range 2 {
		if o := send(t, p, s, time.Minute); o.Result != ledger.ResultAccepted {
			t.Fatalf("got %+v", o)
		}
	}
	_, _, messages := m.Seen()
	if messages[0].Data != messages[1].Data {
		t.Error("two attempts are not the same bytes")
	}
	parsed, err := netmail.ReadMessage(strings.NewReader(messages[0].Data))
	if err != nil {
		t.Fatal(err)
	}
	h := parsed.Header
	for name, want := range map[string]string{
		"Message-Id": "<" + s.SendKey + "@example.org>", "To": "<ada@example.org>", "Date": "Tue, 04 Mar 2031 09:00:00 +0000",
		"Subject": "=?UTF-8?q?Ihr_Platz_l=C3=A4uft_ab?=", "From": "=?utf-8?q?Gr=C3=BC=C3=9Fe?= <support@example.org>",
		"Auto-Submitted": "auto-generated", "User-Agent": "", "X-Mailer": "", "Bcc": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, line := range strings.Split(messages[0].Data, "\n") {
		if len(line) > 998 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	for _, want := range []string{"text/plain; charset=UTF-8", "text/html; charset=UTF-8", "bis 09:10\n.\nQUIT\n", "<p>bis</p>"} {
		if !strings.Contains(messages[0].Data, want) {
			t.Errorf("no %q in\n%s", want, messages[0].Data)
		}
	}
}

func TestSend_OutcomeFollowsFromStepAndReply(t *testing.T) {
	const (
		unknown     = ledger.ResultUnknown
		accepted    = ledger.ResultAccepted
		refused     = ledger.ResultRefused
		gone        = ledger.ResultGone
		credentials = ledger.ResultCredentials
		throttled   = ledger.ResultThrottled
		unreachable = ledger.ResultUnreachable
		deferred    = ledger.ResultDeferred
	)
	for _, test := range []struct {
		at, action string
		result     ledger.Result
		messages   int
	}{
		// Before the dot nothing was sent, whatever failed.
		{providertest.AtConnect, providertest.Drop, unreachable, 0},
		{providertest.AtConnect, providertest.Hang, unreachable, 0},
		{providertest.AtConnect, providertest.Flood, unreachable, 0},
		{providertest.AtConnect, "421 4.3.2 going down", unreachable, 0},
		{providertest.AtConnect, "554 5.7.1 not you", credentials, 0},
		{providertest.AtConnect, "garbage", unreachable, 0},
		{providertest.AtHelo, providertest.Drop, unreachable, 0},
		{providertest.AtHelo, "550 no", credentials, 0},
		{providertest.AtStartTLS, "454 4.7.0 no TLS now", unreachable, 0},
		{providertest.AtStartTLS, "501 5.5.4 no", credentials, 0},
		{providertest.AtStartTLS, providertest.Hang, unreachable, 0},
		{providertest.AtAuth, "535 5.7.8 wrong", credentials, 0},
		{providertest.AtAuth, "530 5.7.0 first", credentials, 0},
		{providertest.AtAuth, "534 5.7.9 too weak", credentials, 0},
		{providertest.AtAuth, "454 4.7.0 later", unreachable, 0},
		{providertest.AtAuth, "421 4.7.0 too many failures", throttled, 0},
		{providertest.AtAuth, providertest.Drop, unreachable, 0},
		{providertest.AtFrom, "550 5.7.1 sender not verified", credentials, 0},
		{providertest.AtFrom, "553 5.1.8 bad sender", credentials, 0},
		{providertest.AtFrom, "530 5.7.0 authenticate", credentials, 0},
		{providertest.AtFrom, "552 5.3.4 too big", refused, 0},
		{providertest.AtFrom, "552 too big", refused, 0},
		{providertest.AtFrom, "451 4.3.0 later", unreachable, 0},
		{providertest.AtFrom, "450 4.7.1 Rate limit exceeded", throttled, 0},
		{providertest.AtFrom, providertest.Hang, unreachable, 0},
		{providertest.AtTo, "550 5.1.1 no such user", gone, 0},
		{providertest.AtTo, "550 no such user", gone, 0},
		{providertest.AtTo, "550 5.5.0 mailbox unavailable", gone, 0},
		{providertest.AtTo, "551 moved", gone, 0},
		{providertest.AtTo, "553 bad name", gone, 0},
		{providertest.AtTo, "501 5.1.3 bad syntax", gone, 0},
		{providertest.AtTo, "556 5.1.10 takes no mail", gone, 0},
		{providertest.AtTo, "552 5.2.2 mailbox full", gone, 0},
		{providertest.AtTo, "552 too many recipients", deferred, 0},
		{providertest.AtTo, "452 4.2.2 mailbox full", deferred, 0},
		{providertest.AtTo, "450 4.1.2 domain not found", deferred, 0},
		{providertest.AtTo, "450 mailbox busy", deferred, 0},
		{providertest.AtTo, "451 4.3.0 lookup failure", deferred, 0},
		{providertest.AtTo, "450 4.7.1 try again later", deferred, 0},
		{providertest.AtTo, "452 4.5.3 too many recipients", deferred, 0},
		{providertest.AtTo, "421 4.3.2 going down", unreachable, 0},
		{providertest.AtTo, "452 4.3.1 disk full", unreachable, 0},
		{providertest.AtTo, "450 4.2.0 greylisted", deferred, 0},
		{providertest.AtTo, "550 5.4.4 no route", deferred, 0},
		{providertest.AtTo, "550 4.3.0 contradictory", deferred, 0},
		{providertest.AtTo, "550 5.7.1 policy", refused, 0},
		{providertest.AtTo, "550 5.1.8 your address", credentials, 0},
		{providertest.AtTo, "503 5.5.1 sequence", credentials, 0},
		{providertest.AtTo, "554 relay access denied", refused, 0},
		{providertest.AtTo, providertest.Drop, unreachable, 0},
		{providertest.AtData, "451 4.3.0 later", unreachable, 0},
		{providertest.AtData, "451 4.7.1 greylisted", deferred, 0},
		{providertest.AtData, "554 5.5.1 no valid recipients", refused, 0},
		{providertest.AtData, providertest.Drop, unreachable, 0},
		{providertest.AtBody, providertest.Drop, unreachable, 0},
		{providertest.AtBody, providertest.Hang, unreachable, 0},

		// After the dot only a reply proves anything.
		{providertest.AtDot, providertest.Drop, unknown, 0},
		{providertest.AtDot, providertest.AcceptDrop, unknown, 1},
		{providertest.AtDot, providertest.AcceptHang, unknown, 1},
		{providertest.AtDot, providertest.Flood, unknown, 0},
		{providertest.AtDot, "garbage", unknown, 0},
		{providertest.AtDot, "354 again", unknown, 0},
		{providertest.AtDot, "250", unknown, 1}, // textproto does not accept a reply without text
		{providertest.AtDot, "251 forwarded", accepted, 1},
		{providertest.AtDot, "421 4.3.2 going down", unreachable, 0},
		{providertest.AtDot, "451 4.7.0 too much mail", throttled, 0},
		{providertest.AtDot, "452 4.3.1 disk full", unreachable, 0},
		{providertest.AtDot, "452 insufficient storage", unreachable, 0},
		{providertest.AtDot, "451 4.7.1 greylisted", deferred, 0},
		{providertest.AtDot, "450 4.2.1 mailbox busy", deferred, 0},
		{providertest.AtDot, "550 5.7.1 spam", refused, 0},
		{providertest.AtDot, "550 content", refused, 0},
		{providertest.AtDot, "550 5.1.1 no such user", gone, 0},
		{providertest.AtDot, "552 5.3.4 too big", refused, 0},
		{providertest.AtDot, "552 5.2.2 mailbox full", gone, 0},
		{providertest.AtDot, "554 no", refused, 0},
		{providertest.AtDot, "554 5.7.8 authenticate", credentials, 0},

		// What follows the acceptance changes nothing.
		{providertest.AtQuit, providertest.Drop, accepted, 1},
		{providertest.AtQuit, providertest.Hang, accepted, 1},
		{providertest.AtQuit, providertest.Flood, accepted, 1},
		{providertest.AtQuit, "550 no", accepted, 1},
	} {
		t.Run(test.at+" "+test.action, func(t *testing.T) {
			t.Parallel()
			m := &providertest.Mail{Script: map[string]string{test.at: test.action}}
			shipment := providertest.Shipment(1)
			if test.at == providertest.AtBody {
				shipment = large()
			}
			p := open(t, m)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.result != accepted {
				go func() { // cancel the call once the session hangs
					select {
					case <-m.Hung():
						cancel()
					case <-ctx.Done():
					}
				}()
			}
			o := p.Send(ctx, shipment)
			sessions, dots, messages := m.Seen()
			if o.Result != test.result || len(messages) != test.messages || sessions != 1 {
				t.Errorf("got %+v with %d accepted in %d sessions, want %v with %d", o, len(messages), sessions, test.result, test.messages)
			}
			if dots > 0 != (test.at == providertest.AtDot || test.at == providertest.AtQuit) {
				t.Errorf("%d messages were ended", dots)
			}
			if (o.Result == unknown || o.Result == unreachable) && o.Cause == "" {
				t.Error("no cause")
			}
		})
	}
}

func TestSend_DeadlineAfterDotIsUnknown(t *testing.T) {
	m := &providertest.Mail{Script: map[string]string{providertest.AtDot: providertest.AcceptHang}}
	p := open(t, m, func(c *smtp.Config) { c.Security = smtp.Plain })
	o := send(t, p, providertest.Shipment(1), 2*time.Second)
	if diff := cmp.Diff(ledger.Outcome{Cause: "timeout"}, o); diff != "" {
		t.Error(diff)
	}
}

func TestSend_ReplyCodesAreStoredButNotText(t *testing.T) {
	m := &providertest.Mail{Script: map[string]string{providertest.AtTo: "550-5.1.1 <ada@example.org>\r\n550 5.1.1 unknown"}}
	o := send(t, open(t, m), providertest.Shipment(1), time.Minute)
	want := ledger.Outcome{Result: ledger.ResultGone, Status: 550, Code: "5.1.1", Cause: "status"}
	if diff := cmp.Diff(want, o); diff != "" {
		t.Error(diff)
	}
}

func TestSend_ReceiptIsQueueID(t *testing.T) {
	for text, want := range map[string]string{
		"250 2.0.0 Ok: queued as 4FXYZ1abc":              "4FXYZ1abc",
		"250 OK id=1sKabc-0001Qd-2X":                     "1sKabc-0001Qd-2X",
		"250 2.0.0 queued as <4FXYZ1>.":                  "4FXYZ1",
		"250 Ok 0102018f-7a3c-000000":                    "Ok 0102018f-7a3c-000000",
		"250 2.1.5 delivered to ada@example.org":         "",
		"250 queued as ada@example.org":                  "",
		"250 2.0.0 " + strings.Repeat("x", 300):          "",
		"250 queued as q\u00e9":                          "q",
		"250-2.0.0 queued\r\n250 2.0.0 queued as second": "second",
	} {
		m := &providertest.Mail{Script: map[string]string{providertest.AtDot: text}}
		if o := send(t, open(t, m), providertest.Shipment(1), time.Minute); o.Result != ledger.ResultAccepted || o.Receipt != want {
			t.Errorf("%q: %v, receipt %q, want %q", text, o.Result, o.Receipt, want)
		}
	}
}

func TestSend_InjectionIsRefusedWithoutDialling(t *testing.T) {
	m := &providertest.Mail{}
	p := open(t, m)
	type mail struct{ to, content string }
	good := mail{"ada@example.org", `{"subject": "s", "text": "t"}`}
	for name, change := range map[string]func(*mail){
		"empty recipient":       func(m *mail) { m.to = "" },
		"no domain":             func(m *mail) { m.to = "ada" },
		"two recipients":        func(m *mail) { m.to = "ada@example.org, eve@example.test" },
		"a name":                func(m *mail) { m.to = "Ada <ada@example.org>" },
		"brackets":              func(m *mail) { m.to = "<ada@example.org>" },
		"command":               func(m *mail) { m.to = "a@example.test>\r\nDATA" },
		"parameter":             func(m *mail) { m.to = "a@example.test> NOTIFY=NEVER" },
		"line feed":             func(m *mail) { m.to = "ada@example.org\nBcc: x@example.test" },
		"carriage return":       func(m *mail) { m.to = "ada\r@example.org" },
		"NUL":                   func(m *mail) { m.to = "ada\x00@example.org" },
		"next line":             func(m *mail) { m.to = "ada\u0085@example.org" },
		"quoted":                func(m *mail) { m.to = `"ada\ eve"@example.org` },
		"comment":               func(m *mail) { m.to = "ada(x)@example.org" },
		"group":                 func(m *mail) { m.to = "g:ada@example.org;" },
		"not UTF-8":             func(m *mail) { m.to = "ada\xff@example.org" },
		"too long":              func(m *mail) { m.to = strings.Repeat("a", 250) + "@example.org" },
		"subject missing":       func(m *mail) { m.content = `{"text": "t"}` },
		"subject in other case": func(m *mail) { m.content = `{"Subject": "s", "text": "t"}` },
		"subject no string":     func(m *mail) { m.content = `{"subject": 1, "text": "t"}` },
		"subject too long":      func(m *mail) { m.content = `{"subject": "` + strings.Repeat("s", 901) + `", "text": "t"}` },
		"subject with a header": func(m *mail) { m.content = `{"subject": "Hi\r\nBcc: x@example.test", "text": "t"}` },
		"subject with CR":       func(m *mail) { m.content = `{"subject": "Hi\rBcc: x@example.test", "text": "t"}` },
		"subject with NUL":      func(m *mail) { m.content = `{"subject": "Hi\u0000", "text": "t"}` },
		"encoded subject":       func(m *mail) { m.content = `{"subject": "=?utf-8?q?Hi=0D=0ABcc:_x@example.test?=", "text": "t"}` },
		"no body":               func(m *mail) { m.content = `{"subject": "s"}` },
		"text no string":        func(m *mail) { m.content = `{"subject": "s", "text": {}}` },
		"no JSON":               func(m *mail) { m.content = `subject: s` },
		"no object":             func(m *mail) { m.content = `[]` },
		"nothing":               func(m *mail) { m.content = `` },
	} {
		input := good
		change(&input)
		s := providertest.Shipment(1)
		s.Recipient, s.Content = input.to, []byte(input.content)
		if o := send(t, p, s, time.Minute); o.Result != ledger.ResultRefused || o.Cause == "" || o.Status != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if sessions, _, _ := m.Seen(); sessions != 0 {
		t.Errorf("%d sessions", sessions)
	}
	s := providertest.Shipment(1)
	s.Content = []byte(`{"subject": "2 = 1 + 1? =?x?", "text": "t"}`)
	if o := send(t, p, s, time.Minute); o.Result != ledger.ResultAccepted {
		t.Errorf("an odd subject: %+v", o)
	}
}

func TestSend_NonASCIIAddressNeedsSMTPUTF8(t *testing.T) {
	s := providertest.Shipment(1)
	s.Recipient = "grüße@example.org"
	for supported, want := range map[bool]ledger.Result{true: ledger.ResultAccepted, false: ledger.ResultRefused} {
		m := &providertest.Mail{UTF8: supported}
		o := send(t, open(t, m), s, time.Minute)
		if _, dots, _ := m.Seen(); o.Result != want || dots > 0 != supported {
			t.Errorf("SMTPUTF8 %v: %+v, %d dots", supported, o, dots)
		}
	}
}

func TestSend_ServerWithoutConfiguredFeaturesIsCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		server *providertest.Mail
		change func(*smtp.Config)
		cause  string
	}{
		"no STARTTLS":         {server: &providertest.Mail{NoStartTLS: true}, cause: "setup"},
		"no known mechanism":  {server: &providertest.Mail{Mechanisms: "GSSAPI"}, cause: "setup"},
		"unknown authority":   {change: func(c *smtp.Config) { c.RootCAs = nil }, cause: "certificate"},
		"unknown to implicit": {server: &providertest.Mail{Implicit: true}, change: func(c *smtp.Config) { c.RootCAs, c.Security = nil, smtp.Implicit }, cause: "certificate"},
		"another host":        {change: func(c *smtp.Config) { c.Host = "localhost" }, cause: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			m := test.server
			if m == nil {
				m = &providertest.Mail{}
			}
			change := test.change
			if change == nil {
				change = func(*smtp.Config) {}
			}
			o := send(t, open(t, m, change), providertest.Shipment(1), time.Minute)
			want := ledger.Outcome{Result: ledger.ResultCredentials, Cause: test.cause}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSend_NobodyListeningOrExpiredIsProvenUnsent(t *testing.T) {
	host, port, _ := net.SplitHostPort(providertest.DeadAddress(t))
	number, _ := strconv.Atoi(port)
	p, err := smtp.New(smtp.Config{Host: host, Port: number, From: "a@example.org"})
	if err != nil {
		t.Fatal(err)
	}
	if o := send(t, p, providertest.Shipment(1), time.Minute); o.Result != ledger.ResultUnreachable || o.Cause != "refused" {
		t.Errorf("nobody listening: %+v", o)
	}
	if o := send(t, p, providertest.Shipment(1), -1); o.Result != ledger.ResultNotCalled {
		t.Errorf("no time left: %+v", o)
	}
}

func TestNew_InvalidConfigIsRejected(t *testing.T) {
	good := smtp.Config{Host: "mail.example.org", From: "Support <support@example.org>", Username: "u", Password: "s3cret"}
	for name, change := range map[string]func(*smtp.Config){
		"no host":            func(c *smtp.Config) { c.Host = "" },
		"port":               func(c *smtp.Config) { c.Port = 70000 },
		"security":           func(c *smtp.Config) { c.Security = "ssl" },
		"remote without TLS": func(c *smtp.Config) { c.Security = smtp.Plain },
		"no sender":          func(c *smtp.Config) { c.From = "" },
		"two senders":        func(c *smtp.Config) { c.From = "a@example.org, b@example.org" },
		"sender with a line": func(c *smtp.Config) { c.From = "a@example.org\r\nRCPT" },
		"helo with a space":  func(c *smtp.Config) { c.Helo = "a b" },
		"helo with a line":   func(c *smtp.Config) { c.Helo = "a\r\nMAIL" },
		"no password":        func(c *smtp.Config) { c.Password = "" },
	} {
		c := good
		change(&c)
		if _, err := smtp.New(c); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := smtp.New(good)
	if err != nil || p.Port != 587 {
		t.Fatalf("port %d, %v", p.Port, err)
	}
	want := ledger.Route{Contract: ledger.Contract{Kind: ledger.ContractBlind}}
	if diff := cmp.Diff(want, p.Route(), cmpopts.IgnoreFields(ledger.Route{}, "Fingerprint")); diff != "" {
		t.Error(diff)
	}
	rotated := good
	rotated.Password = "new"
	moved := good
	moved.Host = "other.example.org"
	for c, same := range map[*smtp.Config]bool{&rotated: true, &moved: false} {
		if other, err := smtp.New(*c); err != nil || (other.Route().Fingerprint == p.Route().Fingerprint) != same {
			t.Errorf("%s: fingerprint unchanged: %v, %v", c.Host, !same, err)
		}
	}
}
