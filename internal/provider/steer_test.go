package provider_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestAPausedProviderIsNotCalledUntilAPersonResumesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f, other := fleet(t, g, provider.Lane{Concurrency: 9}), fleet(t, g, provider.Lane{Concurrency: 9})
		underWay := held(t, f)
		act := ledger.Act{By: "ada", Role: "operator", Why: "the provider asked for it"}
		stands, err := f.Pause(t.Context(), "mail", act)
		if err != nil || !stands.Paused || stands.By != "ada" {
			t.Fatalf("%+v, %v", stands, err)
		}
		shut(t, f, 15*time.Second)
		look(t, other)
		shut(t, other, 15*time.Second)
		if f.Free("mail") != 0 || !f.Shut("mail") {
			t.Errorf("%d free, shut %t", f.Free("mail"), f.Shut("mail"))
		}
		// What was under way settles, and its success opens nothing.
		if closed := underWay(result(ledger.ResultAccepted), 0); closed == 0 {
			t.Error("open after a call")
		}
		time.Sleep(24 * time.Hour) // no time opens it either
		look(t, f)
		shut(t, f, 15*time.Second)

		if again, err := other.Pause(t.Context(), "mail", act); err != nil || again.Version != stands.Version {
			t.Errorf("again: %+v, %v", again, err)
		}
		if resumed, err := other.Resume(t.Context(), "mail", ledger.Act{By: "ben", Role: "operator", Why: "it is well"}); err != nil || resumed.Paused {
			t.Fatalf("%+v, %v", resumed, err)
		}
		held(t, other)
		look(t, f)
		held(t, f)
		if len(g.acts) != 2 || g.acts[0].Verb != "pause:mail" || g.acts[1].Verb != "resume:mail" || g.acts[0].ID == g.acts[1].ID || g.acts[0].ID == "" {
			t.Errorf("%+v", g.acts)
		}
	})
}

func TestAResumeOpensWhatCallsHaveClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		held(t, f)(result(ledger.ResultCredentials), 0)
		shut(t, f, time.Minute)
		if _, err := f.Resume(t.Context(), "mail", ledger.Act{By: "ada"}); err != nil {
			t.Fatal(err)
		}
		held(t, f)
		held(t, f) // not one that tries alone
	})
}

func TestAPauseThatCannotBeWrittenDoesNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		g.fails = errors.New("down")
		if _, err := f.Pause(t.Context(), "mail", ledger.Act{By: "ada"}); err == nil {
			t.Error("no error")
		}
		g.fails = nil
		held(t, f)
		if _, err := f.Pause(t.Context(), "sms", ledger.Act{By: "ada"}); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("a provider that is not configured: %v", err)
		}
		if len(g.acts) != 0 {
			t.Errorf("%+v", g.acts)
		}
	})
}

func TestAProvidersCodeThatNamesThePersonIsNotKept(t *testing.T) {
	for code, want := range map[string]string{
		"no such user: Ada@Example.org": "", "550 5.1.1": "550 5.1.1", "": "",
	} {
		f := fleet(t, &gates{}, provider.Lane{Provider: &stub{name: "mail", code: code}, Concurrency: 1})
		o := f.Send(t.Context(), "mail", ledger.Shipment{Recipient: "ada@example.org"})
		if o.Code != want || o.RequestID != want || o.Result != ledger.ResultAccepted {
			t.Errorf("%q: %+v", code, o)
		}
		if o := f.Send(t.Context(), "mail", ledger.Shipment{}); o.Code != code {
			t.Errorf("%q without a recipient: %+v", code, o)
		}
	}
}
