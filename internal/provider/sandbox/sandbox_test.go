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

var _ provider.Asker = (*sandbox.Provider)(nil)

func shipment(to string) ledger.Shipment {
	id := ledger.Identity{ReminderID: to, Type: "t", Channel: "c"}
	return ledger.Shipment{Identity: id, SendKey: id.SendKey(), Recipient: to}
}

func TestTheRecipientChoosesWhatHappens(t *testing.T) {
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

func TestABlindSandboxTakesARepeatForAnotherMessage(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{Kind: ledger.Lookup})
	p.Send(t.Context(), shipment("ok@example.org"))
	p.Send(t.Context(), shipment("ok@example.org"))
	if p.Sends() != 2 {
		t.Errorf("%d sends, want 2", p.Sends())
	}
}

func TestTheOutcomeCarriesItsEvidence(t *testing.T) {
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
		t.Errorf("a lost answer tells %+v", lost)
	}
}

func TestAskedLaterItTellsWhatItTook(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{Kind: ledger.Lookup})
	for to, want := range map[string]ledger.Finding{
		"ok@x": ledger.Found, "timeout-after-accept@x": ledger.Found,
		"timeout@x": ledger.NotFound, "refuse@x": ledger.NotFound, "throttle@x": ledger.NotFound, "unreachable@x": ledger.NotFound,
	} {
		s := shipment(to)
		if got, o := p.Ask(t.Context(), s.SendKey); got != ledger.NotFound || o != (ledger.Outcome{Status: 404, Cause: "status"}) {
			t.Errorf("%s: %v %+v before anything was sent", to, got, o)
		}
		p.Send(t.Context(), s)
		sends := p.Sends()
		got, o := p.Ask(t.Context(), s.SendKey)
		if got != want || p.Sends() != sends {
			t.Errorf("%s: finding %v, want %v; a question sent %d", to, got, want, p.Sends()-sends)
		}
		if receipt := "sandbox-" + s.SendKey[:12]; (o.Receipt == receipt) != (want == ledger.Found) {
			t.Errorf("%s: receipt %q", to, o.Receipt)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, o := p.Ask(ctx, shipment("ok@x").SendKey); got != ledger.Unanswered || o.Cause != "not_dialled" {
		t.Errorf("too late: %v %+v", got, o)
	}
}

func TestNobodyIsCalledAfterTheDeadline(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := p.Send(ctx, shipment("ok@x")); o.Result != ledger.ResultNotCalled || p.Sends() != 0 {
		t.Errorf("got %+v", o)
	}
}

func TestItsMemoryIsBounded(t *testing.T) {
	p := sandbox.New("sandbox", ledger.Contract{})
	for i := range 100_001 {
		p.Send(t.Context(), ledger.Shipment{SendKey: strconv.Itoa(i)})
	}
	p.Send(t.Context(), ledger.Shipment{SendKey: "100000"}) // remembered
	p.Send(t.Context(), ledger.Shipment{SendKey: "0"})      // the oldest, forgotten
	if p.Sends() != 100_002 {
		t.Errorf("%d sends, want 100002", p.Sends())
	}
}
