package sandbox_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/sandbox"
)

var _ provider.Looker = (*sandbox.Provider)(nil)

func shipment(to string) ledger.Shipment {
	id := ledger.Identity{ReminderID: to, Type: "t", Channel: "c"}
	return ledger.Shipment{Identity: id, SendKey: id.SendKey(), Recipient: to}
}

func TestSend_RecipientSelectsOutcome(t *testing.T) {
	accepted := []ledger.Result{ledger.ResultAccepted, ledger.ResultAccepted}
	for to, test := range map[string]struct {
		results []ledger.Result
		sends   int
	}{
		"ok@example.org":                   {accepted, 1},
		"ada@example.org":                  {accepted, 1},
		"":                                 {accepted, 1},
		"+4915112345678":                   {accepted, 1},
		"Refuse@example.org":               {[]ledger.Result{ledger.ResultRefused, ledger.ResultRefused}, 0},
		"gone@example.org":                 {[]ledger.Result{ledger.ResultGone}, 0},
		"credentials@example.org":          {[]ledger.Result{ledger.ResultCredentials, ledger.ResultCredentials}, 0},
		"throttle@example.org":             {[]ledger.Result{ledger.ResultThrottled, ledger.ResultAccepted}, 1},
		"defer@example.org":                {[]ledger.Result{ledger.ResultDeferred, ledger.ResultDeferred, ledger.ResultAccepted}, 1},
		"unreachable@example.org":          {[]ledger.Result{ledger.ResultUnreachable, ledger.ResultUnreachable, ledger.ResultAccepted}, 1},
		"timeout-after-accept@example.org": {[]ledger.Result{ledger.ResultUnknown, ledger.ResultAccepted}, 1},
		"timeout@example.org":              {[]ledger.Result{ledger.ResultUnknown, ledger.ResultUnknown}, 0},
	} {
		p := sandbox.New("sandbox", ledger.Contract{})
		var got []ledger.Result
		for range test.results {
			got = append(got, p.Send(t.Context(), shipment(to)).Result)
		}
		if diff := cmp.Diff(test.results, got); diff != "" || p.Sends() != test.sends {
			t.Errorf("%q: %d sends, want %d; %s", to, p.Sends(), test.sends, diff)
		}
	}
}

func TestSend_WithoutIdempotencyRepeatCountsAsSecondMessage(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{Kind: ledger.ContractLookup})
	p.Send(t.Context(), shipment("ok@example.org"))
	p.Send(t.Context(), shipment("ok@example.org"))
	if p.Sends() != 2 {
		t.Errorf("%d sends, want 2", p.Sends())
	}
}

func TestSend_OutcomeHasDetails(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{})
	throttled := p.Send(t.Context(), shipment("throttle@example.org"))
	want := ledger.Outcome{
		Result: ledger.ResultThrottled, Status: 429, Code: "slow_down", Cause: "status", RetryAfter: 2 * time.Second,
	}
	if diff := cmp.Diff(want, throttled); diff != "" {
		t.Error(diff)
	}
	ok := shipment("ok@example.org")
	first, second := p.Send(t.Context(), ok), p.Send(t.Context(), ok)
	if want := "sandbox-" + ok.SendKey[:12]; first.Receipt != want || second.Receipt != want {
		t.Errorf("receipts %q and %q, want %q", first.Receipt, second.Receipt, want)
	}
	if lost := p.Send(t.Context(), shipment("timeout-after-accept@x")); lost != (ledger.Outcome{Cause: "timeout"}) {
		t.Errorf("lost response: %+v", lost)
	}
}

func TestLookup_FindsWhatWasAccepted(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{Kind: ledger.ContractLookup})
	for to, want := range map[string]ledger.LookupResult{
		"ok@x": ledger.LookupFound, "timeout-after-accept@x": ledger.LookupFound,
		"timeout@x": ledger.LookupNotFound, "refuse@x": ledger.LookupNotFound, "throttle@x": ledger.LookupNotFound, "unreachable@x": ledger.LookupNotFound,
	} {
		s := shipment(to)
		if got, o := p.Lookup(t.Context(), s.SendKey); got != ledger.LookupNotFound || o != (ledger.Outcome{Status: 404, Cause: "status"}) {
			t.Errorf("%s: %v %+v before anything was sent", to, got, o)
		}
		p.Send(t.Context(), s)
		sends := p.Sends()
		got, o := p.Lookup(t.Context(), s.SendKey)
		if got != want || p.Sends() != sends {
			t.Errorf("%s: result %v, want %v; the lookup sent %d", to, got, want, p.Sends()-sends)
		}
		if receipt := "sandbox-" + s.SendKey[:12]; (o.Receipt == receipt) != (want == ledger.LookupFound) {
			t.Errorf("%s: receipt %q", to, o.Receipt)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, o := p.Lookup(ctx, shipment("ok@x").SendKey); got != ledger.LookupUnanswered || o.Cause != "not_dialled" {
		t.Errorf("after the context ended: %v %+v", got, o)
	}
}

func TestSend_AfterDeadlineIsNotCalled(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := p.Send(ctx, shipment("ok@x")); o.Result != ledger.ResultNotCalled || p.Sends() != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestSend_RememberedKeysAreLimited(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{})
	for i := range 100_001 {
		p.Send(t.Context(), ledger.Shipment{SendKey: strconv.Itoa(i)})
	}
	p.Send(t.Context(), ledger.Shipment{SendKey: "100000"}) // remembered
	p.Send(t.Context(), ledger.Shipment{SendKey: "0"})      // the oldest, dropped
	if p.Sends() != 100_002 {
		t.Errorf("%d sends, want 100002", p.Sends())
	}
}
