package reminder

import (
	"strconv"
	"strings"
)

// maxFaults is the maximum number of faults reported for one document.
const maxFaults = 32

// maxShownName is the maximum length, in bytes, of a name quoted from a possibly hostile document.
const maxShownName = 64

// Fault is one error in a document.
type Fault struct {
	Field   string // a JSON name or dotted path, "content" or "metadata.course"; empty for the whole document
	Problem string // what is wrong and what is allowed; never the value
}

// Faults are the errors in a document, ordered by field; at most 32 are reported.
type Faults []Fault

// Error returns all faults on one line.
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

// quoteName returns a name from the document in a form that is safe in logs and responses.
func quoteName(name string) string {
	if ascii(name, '!', maxShownName) {
		return name
	}
	return strconv.QuoteToASCII(name[:min(len(name), maxShownName)])
}
