package config

import (
	"strings"
	"testing"
)

func TestNearest_CorrectsTypos(t *testing.T) {
	names := []string{"answer_within", "base", "cap", "lease", "ops_listen", "port", "host", "url"}
	for written, want := range map[string]string{
		"bsae": "base", "bas": "base", "ulr": "url", "leese": "lease", "laes": "", "ops-listen": "ops_listen",
		"answerWithin": "answer_within", "opslisten": "ops_listen", "lisent": "", "form": "", "": "", "x": "",
		strings.Repeat("a", 1<<20): "",
	} {
		if got := nearest(written, names); got != want {
			t.Errorf("nearest(%.20q) = %q, want %q", written, got, want)
		}
	}
}
