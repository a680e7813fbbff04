package api

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// payloadOf is what an entry carries, as far as the role may see it: it is the operator's work to read it, so
// no line of the audit is written for that.
func payloadOf(p *ledger.Payload, role Role) wire.Payload {
	switch {
	case p == nil:
		return wire.Payload{}
	case !role.holds(Operator):
		return wire.Payload{To: masked(p.Recipient), Masked: true}
	default:
		return wire.Payload{To: p.Recipient, Content: document(p.Content), Metadata: document(p.Metadata), Raw: p.Raw}
	}
}

// document is kept JSON as it stands; nil for what is none, which would spoil the whole answer.
func document(kept []byte) json.RawMessage {
	if !json.Valid(kept) {
		return nil
	}
	return kept
}

// purged tells whether an entry's payload went. What was cancelled before its first delivery had none, nor
// has what only its provider knows.
func purged(story ledger.Story) bool {
	if story.Payload != nil {
		return false
	}
	if len(story.Timeline) == 0 {
		return true
	}
	born := story.Timeline[0]
	return born.Version != 1 || !cancels(born) && born.Kind != ledger.EventReport
}

// masked is a recipient as far as it takes to tell two apart: the first character and the domain of an e-mail,
// of anything else the last two characters, unless these are half of it.
func masked(to string) string {
	const mask = "***"
	if cut := strings.LastIndexByte(to, '@'); cut > 0 && isDomain(to[cut+1:]) {
		first, _ := utf8.DecodeRuneInString(to)
		return string(first) + mask + to[cut:]
	}
	letters := []rune(to)
	switch n := len(letters); {
	case n == 0:
		return ""
	case n <= 4:
		return mask
	default:
		return mask + string(letters[n-2:])
	}
}

// isDomain tells whether a text can be a domain, and no path or token is hidden in it.
func isDomain(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '.' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}
