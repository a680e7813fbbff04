package reminder

import (
	"strconv"
	"strings"
)

// maxFaults bounds an answer to a document that is wrong all over.
const maxFaults = 32

// maxShownName bounds a name out of a hostile document, in bytes.
const maxShownName = 64

// Fault is one thing that is wrong with a document.
type Fault struct {
	Field   string // a JSON name or dotted path, "content" or "metadata.course"; empty for the whole document
	Problem string // what is wrong and what is allowed; never what stood there
}

// Faults is everything that is wrong with a document, ordered by field; at most 32 are told.
type Faults []Fault

// Error is all faults on one line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Problem
		if fault.Field != "" {
			lines[i] = fault.Field + ": " + fault.Problem
		}
	}
	return strings.Join(lines, "; ")
}

// shown is a name from the document, safe to repeat in logs and answers.
func shown(name string) string {
	if ascii(name, '!', maxShownName) {
		return name
	}
	return strconv.QuoteToASCII(name[:min(len(name), maxShownName)])
}
