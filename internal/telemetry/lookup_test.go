package telemetry

import (
	"context"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

type oracle ledger.Finding

func (o oracle) Ask(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
	return ledger.Finding(o), ledger.Outcome{Status: 200, Cause: "status"}
}

type hollow struct{}

func (hollow) Ask(context.Context, string, string) (ledger.Finding, ledger.Outcome) { panic("asked") }

func TestEachQuestionIsCountedByItsAnswer(t *testing.T) {
	r := newRig(t)
	for _, finding := range ledger.Findings() {
		before := r.scraped()
		if got, _ := r.Asker(oracle(finding)).Ask(t.Context(), "mail", "key"); got != finding {
			t.Errorf("%s came back as %s", finding, got)
		}
		if got := r.changes(before)[`sendonce_lookups_total{answer="`+finding.String()+`",provider="mail"}`]; got != 1 {
			t.Errorf("%s is counted %v times", finding, got)
		}
	}
	before := r.scraped()
	_, _ = r.Asker(oracle(ledger.Found)).Ask(t.Context(), "drawn by somebody", "key")
	func() {
		defer func() { _ = recover() }()
		_, _ = r.Asker(hollow{}).Ask(t.Context(), "mail", "key")
	}()
	changes := r.changes(before)
	if changes[`sendonce_lookups_total{answer="found",provider="other"}`] != 1 {
		t.Errorf("a provider that is not configured: %v", changes)
	}
	if changes[`sendonce_lookups_total{answer="unanswered",provider="mail"}`] != 1 {
		t.Errorf("a question that panicked: %v", changes)
	}
}

func TestTheLastChangeOfTheDatabaseIsShown(t *testing.T) {
	r := newRig(t)
	const metric = "sendonce_failover_noticed_timestamp_seconds"
	var last ledger.Failover
	r.Failovers(func() ledger.Failover { return last })
	if got := r.scraped()[metric]; got != 0 {
		t.Errorf("it never changed, and the scrape says %v", got)
	}
	last.Noticed = time.Unix(1_900_000_000, 0)
	if got := r.scraped()[metric]; got != 1_900_000_000 {
		t.Errorf("the scrape says %v", got)
	}
}

func TestEachSweepIsCounted(t *testing.T) {
	r := newRig(t)
	before := r.scraped()
	r.Swept()
	if got := r.changes(before)["sendonce_sweeps_total"]; got != 1 {
		t.Errorf("counted %v times", got)
	}
}
