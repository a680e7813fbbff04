package telemetry

import (
	"io"
	"log/slog"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what one field may hold, in bytes.
const (
	maxWord = 256  // an id or another machine word
	maxText = 1024 // an error
)

// minSecret is the shortest piece of a message that is struck from free text: shorter ones stand in any
// sentence.
const minSecret = 4

// NewLogger writes one line per record: JSON, or text for a person's terminal. Times are UTC. Both forms
// escape line breaks and control characters, so a hostile id can't forge a second line. Whatever is told as
// "error" is redacted, whoever tells it: a driver's error may show a user, a password or a row.
func NewLogger(w io.Writer, level slog.Leveler, text bool) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: tidy}
	if text {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// errorKey is the key under which every line tells its error.
const errorKey = "error"

func tidy(groups []string, a slog.Attr) slog.Attr {
	switch {
	case len(groups) == 0 && a.Key == slog.TimeKey:
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	case a.Key == errorKey:
		a.Value = slog.StringValue(redact(a.Value.String()))
	}
	return a
}

// word makes an id fit for a field.
func word(s string) string { return printable(cut(s, maxWord)) }

// printable replaces what a terminal or an editor would obey although JSON lets it through: C1 controls,
// bidirectional marks. The handlers escape the rest.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII && !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// cut keeps at most limit bytes, and no broken rune.
func cut(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}

const struck = "[…]"

// personal matches what free text may show of a person or a secret: what stands in quotes or, as
// PostgreSQL shows a row's values, behind "=("; addresses, and a URL's password with them; phone and
// other long numbers; a URL's query; and what follows the name of a credential.
var personal = regexp.MustCompile(`"[^"]*"?|=\([^)]*\)?|\S+@\S+` +
	`|\+\d[\d .()/-]{5,}\d|\d{2,}[ /-][\d /-]{4,}\d|\d{7,}` +
	`|\?\S+|(?i:bearer|basic|user=|password=|token=)\s*\S+`)

// redact makes free text fit for a field. What stands in private too is struck, whole or piece by piece.
func redact(text string, private ...string) string {
	text = personal.ReplaceAllString(cut(text, 4*maxText), struck)
	return printable(cut(strike(text, private), maxText))
}

// pieces are what free text is taken apart into.
var pieces = regexp.MustCompile(`[\pL\pN@._+%-]+`)

func strike(text string, private []string) string {
	for _, p := range private {
		if len(p) >= minSecret {
			text = strings.ReplaceAll(text, p, struck)
		}
	}
	return pieces.ReplaceAllStringFunc(text, func(piece string) string {
		bare := strings.Trim(piece, "._+%-")
		for _, p := range private {
			if len(bare) >= minSecret && strings.Contains(p, bare) {
				return struck
			}
		}
		return piece
	})
}
