package telemetry

import (
	"context"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

type fakeLooker ledger.LookupResult

func (f fakeLooker) Lookup(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
	return ledger.LookupResult(f), ledger.Outcome{Status: 200, Cause: "status"}
}

type panickingLooker struct{}

func (panickingLooker) Lookup(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
	panic("boom")
}

func TestLooker_CountsByResult(t *testing.T) {
	h := newHarness(t)
	for _, result := range ledger.LookupResults() {
		before := h.scraped()
		if got, _ := h.Looker(fakeLooker(result)).Lookup(t.Context(), "mail", "key"); got != result {
			t.Errorf("%s came back as %s", result, got)
		}
		if got := h.changes(before)[`sendonce_lookups_total{provider="mail",result="`+result.String()+`"}`]; got != 1 {
			t.Errorf("%s is counted %v times", result, got)
		}
	}
	before := h.scraped()
	_, _ = h.Looker(fakeLooker(ledger.LookupFound)).Lookup(t.Context(), "unconfigured", "key")
	func() {
		defer func() { _ = recover() }()
		_, _ = h.Looker(panickingLooker{}).Lookup(t.Context(), "mail", "key")
	}()
	changes := h.changes(before)
	if changes[`sendonce_lookups_total{provider="other",result="found"}`] != 1 {
		t.Errorf("a provider that is not configured: %v", changes)
	}
	if changes[`sendonce_lookups_total{provider="mail",result="unanswered"}`] != 1 {
		t.Errorf("a lookup that panicked: %v", changes)
	}
}

func TestFailovers_ShowsTheLastFailover(t *testing.T) {
	h := newHarness(t)
	const metric = "sendonce_failover_noticed_timestamp_seconds"
	var last ledger.Failover
	h.Failovers(func() ledger.Failover { return last })
	if got := h.scraped()[metric]; got != 0 {
		t.Errorf("without a failover the scrape shows %v, want 0", got)
	}
	last.Noticed = time.Unix(1_900_000_000, 0)
	if got := h.scraped()[metric]; got != 1_900_000_000 {
		t.Errorf("the scrape shows %v", got)
	}
}

func TestSweepDone_CountsEachSweep(t *testing.T) {
	h := newHarness(t)
	before := h.scraped()
	h.SweepDone()
	if got := h.changes(before)["sendonce_sweeps_total"]; got != 1 {
		t.Errorf("counted %v times", got)
	}
}
