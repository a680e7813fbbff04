package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// teller prints a rehearsal as a story, and what it waits for beside it.
type teller struct {
	out      io.Writer
	progress io.Writer
	steps    int
}

// introduce says what is about to be walked, and on what.
func (t *teller) introduce(w *walk) {
	t.steps = 0
	t.title(w.history.headline())
	ledger := "PostgreSQL, in the database that stands beside the configured one for rehearsals"
	if w.Database == "" {
		ledger = "SQLite, a fresh file in " + w.folder
	}
	t.line("ledger", "%s", ledger)
	t.line("provider", "%s, a stand-in that keeps this contract; no real provider is configured, so none can be called", w.provider.url)
	t.line("left out", "questions of relevance, rates, and the real sources' envelopes")
	times := "as configured"
	if !w.RealTime {
		times = fmt.Sprintf("shortened (-real-time keeps them): lease %s for %s, sweep %s for %s, backoff from %s for %s",
			short(w.setting.Lease), short(w.Lease), short(w.setting.Sweep), short(w.Sweep),
			short(w.history.policy.Base), short(w.Types[w.history.kind].Base))
	}
	t.line("times", "%s", times)
}

func (t *teller) title(text string) {
	fmt.Fprintf(t.out, "== Rehearsal: %s\n", text)
}

func (t *teller) step(text string, args ...any) {
	t.steps++
	fmt.Fprintf(t.out, "\n%d. %s\n", t.steps, fmt.Sprintf(text, args...))
}

func (t *teller) line(who, text string, args ...any) {
	fmt.Fprintf(t.out, "   %-9s %s\n", who, fmt.Sprintf(text, args...))
}

func (t *teller) wait(d time.Duration, why string) {
	fmt.Fprintf(t.progress, "… %s: %s\n", short(d), why)
}

// timeline tells an entry's story as support reads it.
func (t *teller) timeline(s *client.Story) {
	if s == nil {
		t.line("entry", "there is none")
		return
	}
	e := s.Entry
	told := fmt.Sprintf("%s (%s), attempts %d, lapses %d, deliveries %d", e.State, e.Reason, e.Attempts, e.Lapses, e.Deliveries)
	if e.Receipt != "" {
		told += ", receipt " + e.Receipt
	}
	if e.ReceiptMissing != "" {
		told += ", no receipt: " + string(e.ReceiptMissing)
	}
	t.line("entry", "%s", told)
	for _, l := range s.Timeline {
		t.line(l.At.UTC().Format(time.TimeOnly), "%s", l.Text)
	}
}

// verdict says how it went.
func (t *teller) verdict(findings []string, praise func() string) {
	if len(findings) == 0 {
		fmt.Fprintf(t.out, "\nVerdict: right. %s. Nothing doubled, nothing lost.\n\n", upper(praise()))
		return
	}
	fmt.Fprintf(t.out, "\nVerdict: WRONG.\n   %s\n\n", strings.Join(findings, "\n   "))
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

// short is a duration without its idle zeros.
func short(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	for _, idle := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, idle) {
			text = text[:len(text)-2]
		}
	}
	return text
}
