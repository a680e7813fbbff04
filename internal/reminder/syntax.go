package reminder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits on the structure of a document. The caller limits its size, before it is read.
const (
	maxDepth  = 16     // nested objects and arrays, including the document itself
	maxTokens = 20_000 // names, values and brackets
)

// checkSyntax reads the whole document once and is the only check of its structure: one JSON object (RFC 8259) in
// the interoperable profile of RFC 7493, within the limits, without NUL.
func checkSyntax(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("\ufeff")) {
		return Faults{{Problem: "starts with a byte order mark; RFC 8259 section 8.1 allows none"}}
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(raw))
	if kind := d.PeekKind(); kind != '{' {
		return Faults{{Problem: "must be one JSON object"}}
	}
	for tokens := 1; ; tokens++ {
		token, err := d.ReadToken()
		if err != nil {
			return syntaxFault(err, d)
		}
		switch {
		case token.Kind() == '"' && strings.ContainsRune(token.String(), 0):
			return Faults{{field(d.StackPointer()), "contains the character U+0000, which cannot be stored"}}
		case d.StackDepth() > maxDepth:
			return Faults{{field(d.StackPointer()), fmt.Sprintf("is nested deeper than %d levels", maxDepth)}}
		case tokens > maxTokens:
			return Faults{{Problem: fmt.Sprintf("holds more than %d names and values", maxTokens)}}
		}
		if d.StackDepth() == 0 {
			break
		}
	}
	if rest := bytes.TrimLeft(raw[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return Faults{{Problem: fmt.Sprintf("continues after its end, at byte %d", len(raw)-len(rest))}}
	}
	return nil
}

// syntaxFault describes the decoder's error in our own words, since the decoder's may quote the document.
func syntaxFault(err error, d *jsontext.Decoder) error {
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return Faults{{Problem: "ends before the object is closed"}}
	case errors.As(err, &syntactic) && errors.Is(err, jsontext.ErrDuplicateName):
		return Faults{{field(syntactic.JSONPointer), "occurs twice in one object"}}
	case errors.As(err, &syntactic):
		return Faults{{field(syntactic.JSONPointer), fmt.Sprintf(
			"is not JSON in valid UTF-8 without lone surrogates, at byte %d", syntactic.ByteOffset)}}
	}
	return Faults{{Problem: fmt.Sprintf("is not JSON, at byte %d", d.InputOffset())}}
}

// field returns the dotted path of a position in the document, at most two names deep.
func field(at jsontext.Pointer) string {
	var names []string
	for name := range at.Tokens() {
		if names = append(names, quoteName(name)); len(names) == 2 {
			break
		}
	}
	return strings.Join(names, ".")
}
