package telemetry

import (
	"io"
	"log/slog"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of one field, in bytes.
const (
	maxField = 256  // an id, code or other identifier
	maxError = 1024 // an error
)

// minSecret is the length of the shortest part of a message that is redacted from free text: shorter ones occur
// in any sentence.
const minSecret = 4

// NewLogger returns a logger that writes one line per record: JSON, or text for a terminal. Times are UTC. Both
// formats escape line breaks and control characters, so a hostile id can't forge a second line. Every value of
// the key "error" is redacted, whoever logs it: a driver's error may show a user, a password or a row.
func NewLogger(w io.Writer, level slog.Leveler, text bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: normalizeAttr}
	if text {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// errorKey is the key of the error in every line.
const errorKey = "error"

func normalizeAttr(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) == 0 && a.Key == slog.TimeKey:
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	case a.Key == errorKey:
		a.Value = slog.StringValue(redact(a.Value.String()))
	}
	return a
}

// clean makes an identifier safe for a field.
func clean(s string) string { return printable(truncate(s, maxField)) }

// printable replaces characters that a terminal or an editor interprets although JSON permits them: C1
// controls, bidirectional marks. The handlers escape the rest.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII && !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// truncate keeps at most limit bytes, and no broken rune.
func truncate(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

const redacted = "[…]"

// sensitive matches what may show a person or a secret in free text: quoted strings; the values of a row, which
// PostgreSQL shows after "=("; addresses, and with them the password in a URL; phone and other long numbers; a
// URL's query; and what follows the name of a credential.
var sensitive = regexp.MustCompile(`"[^"]*"?|=\([^)]*\)?|\S+@\S+` +
	`|\+\d[\d .()/-]{5,}\d|\d{2,}[ /-][\d /-]{4,}\d|\d{7,}` +
	`|\?\S+|(?i:bearer|basic|user=|password=|token=)\s*\S+`)

// redact makes free text safe for a field. What is in private too is redacted, as a whole or token by token.
func redact(text string, private ...string) string {
	text = sensitive.ReplaceAllString(truncate(text, 4*maxError), redacted)
	return printable(truncate(redactText(text, private), maxError))
}

// tokens matches the parts into which free text is split.
var tokens = regexp.MustCompile(`[\pL\pN@._+%-]+`)

func redactText(text string, private []string) string {
	for _, p := range private {
		if len(p) >= minSecret {
			text = strings.ReplaceAll(text, p, redacted)
		}
	}
	return tokens.ReplaceAllStringFunc(text, func(token string) string {
		bare := strings.Trim(token, "._+%-")
		for _, p := range private {
			if len(bare) >= minSecret && strings.Contains(p, bare) {
				return redacted
			}
		}
		return token
	})
}
