package api

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// payloadOf returns the payload of an entry as far as the role may see it. Reading it is part of an operator's work,
// so it is not recorded in the audit log.
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

// document returns stored JSON unchanged; nil where it is not valid, which would break the whole answer.
func document(stored []byte) json.RawMessage {
	if !json.Valid(stored) {
		return nil
	}
	return stored
}

// purged reports whether an entry had a payload that was deleted. An entry that was cancelled before its first
// delivery never had one, nor has one that only its provider knows.
func purged(detail ledger.EntryDetail) bool {
	if detail.Payload != nil {
		return false
	}
	if len(detail.Timeline) == 0 {
		return true
	}
	first := detail.Timeline[0]
	return first.Version != 1 || !cancels(first) && first.Kind != ledger.EventStatus
}

// masked returns as much of a recipient as is needed to tell two apart: the first character and the domain of an
// e-mail address, or the last two characters of anything else, unless these are half of it.
func masked(to string) string {
	const mask = "***"
	if cut := strings.LastIndexByte(to, '@'); cut > 0 && isDomain(to[cut+1:]) {
		first, _ := utf8.DecodeRuneInString(to)
		return string(first) + mask + to[cut:]
	}
	characters := []rune(to)
	switch n := len(characters); {
	case n == 0:
		return ""
	case n <= 4:
		return mask
	default:
		return mask + string(characters[n-2:])
	}
}

// isDomain reports whether a text can be a domain name, so that it cannot contain a path or a token.
func isDomain(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '.' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}
