package smtp

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	netmail "net/mail"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wneessen/go-mail"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

// Limits in bytes: a path by RFC 5321, section 4.5.3.1.3, without its brackets; and a subject that fits in one
// header line by section 4.5.3.1.6 even if it contains no space to fold at.
const (
	maxAddress = 254
	maxSubject = 900
)

var (
	errRecipient = errors.New("smtp: the recipient is not a plain address")
	errContent   = errors.New("smtp: the content is not a mail with a subject and a text or html body")
)

// compose builds the message. It runs before anything is dialled, so what it rejects is rejected for good.
func compose(s ledger.Shipment, from netmail.Address, date time.Time) ([]byte, error) {
	if !plainAddress(s.Recipient) {
		return nil, errRecipient
	}
	var fields map[string]json.RawMessage // a map, since struct fields match without regard to case
	if json.Unmarshal(s.Content, &fields) != nil {
		return nil, errContent
	}
	var subject, text, html string
	for name, target := range map[string]*string{"subject": &subject, "text": &text, "html": &html} {
		if raw, given := fields[name]; given && json.Unmarshal(raw, target) != nil {
			return nil, errContent
		}
	}
	if !plainSubject(subject) || text == "" && html == "" {
		return nil, errContent
	}

	_, domain, _ := strings.Cut(from.Address, "@")
	m := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithBoundary(provider.Fingerprint("boundary", s.SendKey)[:40]))
	m.FromMailAddress(&from)
	m.ToMailAddress(&netmail.Address{Address: s.Recipient})
	m.Subject(subject)
	m.SetDateWithValue(date.UTC())
	m.SetMessageIDWithValue(s.SendKey + "@" + domain)
	m.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: suppresses vacation replies
	if text != "" {
		m.SetBodyString(mail.TypeTextPlain, text)
	}
	switch {
	case html != "" && text != "":
		m.AddAlternativeString(mail.TypeTextHTML, html)
	case html != "":
		m.SetBodyString(mail.TypeTextHTML, html)
	}
	var b bytes.Buffer
	if _, err := m.WriteTo(&b); err != nil {
		return nil, errContent
	}
	return b.Bytes(), nil
}

// plainAddress reports whether s is exactly one address, without name, comment, quoting or space.
func plainAddress(s string) bool {
	if len(s) > maxAddress || !printable(s) || strings.ContainsAny(s, " <>\"(),;:\\") {
		return false
	}
	a, err := netmail.ParseAddress(s)
	return err == nil && a.Name == "" && a.Address == s
}

// plainSubject reports whether s is safe as a header, also after a reader decodes it: an encoded word (RFC 2047)
// can hide a line break in printable ASCII.
func plainSubject(s string) bool {
	if s == "" || len(s) > maxSubject || !printable(s) {
		return false
	}
	decoded, err := new(mime.WordDecoder).DecodeHeader(s)
	return err != nil || printable(decoded)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	})
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}
