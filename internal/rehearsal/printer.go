package rehearsal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// printer prints the steps of a rehearsal, and its waits to a separate writer.
type printer struct {
	out      io.Writer
	progress io.Writer
	steps    int
}

// header prints the scenario and its setup.
func (p *printer) header(sc *scenario) {
	p.steps = 0
	p.title(sc.history.headline())
	ledger := "PostgreSQL, in the separate database for rehearsals"
	if sc.Database == "" {
		ledger = "SQLite, a new file in " + sc.folder
	}
	p.line("ledger", "%s", ledger)
	p.line("provider", "%s, a fake provider with this contract; no real provider is configured, so none can be called", sc.provider.url)
	p.line("left out", "relevance checks, rate limits, and the formats of the real sources")
	durations := "as configured"
	if !sc.RealTime {
		durations = fmt.Sprintf("shortened (-real-time keeps them): lease %s for %s, sweep %s for %s, backoff from %s for %s",
			formatDuration(sc.setting.Lease), formatDuration(sc.Lease), formatDuration(sc.setting.Sweep), formatDuration(sc.Sweep),
			formatDuration(sc.history.policy.Base), formatDuration(sc.Types[sc.history.typeName].Base))
	}
	p.line("times", "%s", durations)
}

func (p *printer) title(text string) {
	fmt.Fprintf(p.out, "== Rehearsal: %s\n", text)
}

func (p *printer) step(text string, args ...any) {
	p.steps++
	fmt.Fprintf(p.out, "\n%d. %s\n", p.steps, fmt.Sprintf(text, args...))
}

func (p *printer) line(actor, text string, args ...any) {
	fmt.Fprintf(p.out, "   %-9s %s\n", actor, fmt.Sprintf(text, args...))
}

func (p *printer) wait(d time.Duration, reason string) {
	fmt.Fprintf(p.progress, "… %s: %s\n", formatDuration(d), reason)
}

// timeline prints an entry and its timeline as support sees them.
func (p *printer) timeline(s *client.EntryDetail) {
	if s == nil {
		p.line("entry", "does not exist")
		return
	}
	e := s.Entry
	text := fmt.Sprintf("%s (%s), attempts %d, expired leases %d, deliveries %d", e.State, e.Reason, e.Attempts, e.LeaseExpirations, e.Deliveries)
	if e.Receipt != "" {
		text += ", receipt " + e.Receipt
	}
	if e.ReceiptMissing != "" {
		text += ", no receipt: " + string(e.ReceiptMissing)
	}
	p.line("entry", "%s", text)
	for _, l := range s.Timeline {
		p.line(l.At.UTC().Format(time.TimeOnly), "%s", l.Text)
	}
}

// verdict prints the findings, or the summary if there are none.
func (p *printer) verdict(findings []string, summary func() string) {
	if len(findings) == 0 {
		fmt.Fprintf(p.out, "\nVerdict: right. %s. Nothing sent twice, nothing lost.\n\n", capitalize(summary()))
		return
	}
	fmt.Fprintf(p.out, "\nVerdict: WRONG.\n   %s\n\n", strings.Join(findings, "\n   "))
}

func capitalize(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// timesText is "once", "twice" or a number of times.
func timesText(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	default:
		return fmt.Sprintf("%d times", n)
	}
}

// formatDuration is a duration without trailing zero units.
func formatDuration(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}
