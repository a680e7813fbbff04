package provider

import (
	"encoding/base64"
	"html"
	"net/url"
	"regexp"
	"strings"

	"github.com/sendonce/sendonce/internal/ledger"
)

// redactRecipient drops the code, the request id and the receipt if they contain the recipient, plain or encoded.
// They are stored with the entry for as long as it exists, shown to everybody who may see the entry, and not reached
// by an erasure.
func redactRecipient(o ledger.Outcome, recipient string) ledger.Outcome {
	for _, text := range []*string{&o.Code, &o.RequestID, &o.Receipt} {
		if reveals(*text, recipient) {
			*text = ""
		}
	}
	return o
}

// maxDecodings is how many encodings, one around the other, are undone: a URL in a URL, for example.
const maxDecodings = 3

// base64Run is a part of a text that may be base64 of a few bytes or more, in either alphabet.
var base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{4,}`)

// escapedByte matches the escapes of one byte or character that are not percent-encoding: quoted-printable, those of
// JSON, and xtext (RFC 3461 section 4).
var escapedByte = regexp.MustCompile(`(?i)(?:=|\\x|\\u00|\+)([0-9a-f]{2})`)

// reveals reports whether a text contains the recipient in any case, percent-encoded, as quoted-printable, with the
// escapes of JSON, HTML or xtext, or in base64.
func reveals(text, recipient string) bool {
	if recipient == "" || text == "" {
		return false
	}
	// A code is cut to its maximum length: of an address, the part before the domain is looked for.
	wanted := recipient[:strings.LastIndexByte(recipient, '@')+1]
	if len(wanted) < 2 {
		wanted = recipient
	}
	return holds(text, strings.ToLower(wanted), maxDecodings)
}

// holds reports whether text, or what up to depth decodings make of it, contains wanted, which is in lower case.
func holds(text, wanted string, depth int) bool {
	if strings.Contains(strings.ToLower(text), wanted) {
		return true
	}
	if depth == 0 {
		return false
	}
	for _, decode := range []func(string) string{unescapePercent, unescapeBytes, html.UnescapeString, dropQuotes} {
		if decoded := decode(text); decoded != text && holds(decoded, wanted, depth-1) {
			return true
		}
	}
	for _, run := range base64Run.FindAllString(text, -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
		// The run may begin with something else that fits the alphabet, so that the encoded part starts anywhere in
		// it. What cannot be a whole group at its end is left out.
		for start := range min(len(run), 4) {
			part := run[start:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			decoded, err := base64.RawStdEncoding.DecodeString(part)
			if err == nil && len(decoded) > 0 && holds(string(decoded), wanted, depth-1) {
				return true
			}
		}
	}
	return false
}

// unescapePercent undoes percent-encoding and leaves what is not valid as it is.
func unescapePercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) {
			if decoded, err := url.PathUnescape(s[i : i+3]); s[i] == '%' && err == nil {
				b.WriteString(decoded)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func unescapeBytes(s string) string {
	return escapedByte.ReplaceAllStringFunc(s, func(escape string) string {
		decoded, err := url.PathUnescape("%" + escape[len(escape)-2:])
		if err != nil {
			return escape
		}
		return decoded
	})
}

// dropQuotes removes the quoting of a local part, as in "ada"@example.org, and a space that encodes a plus sign.
func dropQuotes(s string) string {
	return strings.NewReplacer(`"`, "", `\`, "", "<", "", ">", "", " ", "+").Replace(s)
}
