package api

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// desks are what operators' acts reach, each a function that a test may set.
type desks struct {
	groups    func(ctx context.Context, limit int) ([]ledger.Group, error)
	discard   func(context.Context, ledger.Identity, int64, ledger.Act) (ledger.Entry, error)
	preview   func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error)
	redrive   func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error)
	redrives  func(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error)
	show      func(ctx context.Context, id string) (ledger.RedriveReport, error)
	stop      func(ctx context.Context, id string, act ledger.Act) (ledger.Redrive, error)
	audit     func(context.Context, ledger.AuditQuery) ([]ledger.Act, error)
	providers func(context.Context) ([]ledger.ProviderView, error)
	pause     func(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error)
	resume    func(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error)
	erase     func(ctx context.Context, userID string, act ledger.Act) (int, error)
}

func (c *collaborators) Groups(ctx context.Context, limit int) ([]ledger.Group, error) {
	c.uncalled("Groups", c.groups == nil)
	return c.groups(ctx, limit)
}

func (c *collaborators) Discard(ctx context.Context, id ledger.Identity, version int64, act ledger.Act) (ledger.Entry, error) {
	c.uncalled("Discard", c.discard == nil)
	return c.discard(ctx, id, version, act)
}

func (c *collaborators) Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error) {
	c.uncalled("Redrives", c.redrives == nil)
	return c.redrives(ctx, after, limit)
}

func (c *collaborators) Show(ctx context.Context, id string) (ledger.RedriveReport, error) {
	c.uncalled("Show", c.show == nil)
	return c.show(ctx, id)
}

func (c *collaborators) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.Act, error) {
	c.uncalled("Audit", c.audit == nil)
	return c.audit(ctx, q)
}

func (c *collaborators) Providers(ctx context.Context) ([]ledger.ProviderView, error) {
	c.uncalled("Providers", c.providers == nil)
	return c.providers(ctx)
}

func (c *collaborators) Pause(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error) {
	c.uncalled("Pause", c.pause == nil)
	return c.pause(ctx, provider, act)
}

func (c *collaborators) Resume(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error) {
	c.uncalled("Resume", c.resume == nil)
	return c.resume(ctx, provider, act)
}

func (c *collaborators) Erase(ctx context.Context, userID string, act ledger.Act) (int, error) {
	c.uncalled("Erase", c.erase == nil)
	return c.erase(ctx, userID, act)
}

// redriveDesk is the desk of redrives, whose verbs others have too.
type redriveDesk struct{ c *collaborators }

func (d redriveDesk) Preview(ctx context.Context, ask ledger.RedriveRequest) (ledger.RedriveReport, error) {
	d.c.uncalled("Preview", d.c.preview == nil)
	return d.c.preview(ctx, ask)
}

func (d redriveDesk) Start(ctx context.Context, ask ledger.RedriveRequest) (ledger.Redrive, bool, error) {
	d.c.uncalled("Start of a redrive", d.c.redrive == nil)
	return d.c.redrive(ctx, ask)
}

func (d redriveDesk) Cancel(ctx context.Context, id string, act ledger.Act) (ledger.Redrive, error) {
	d.c.uncalled("Cancel of a redrive", d.c.stop == nil)
	return d.c.stop(ctx, id, act)
}

const aRedriveRequest = `{"filter": {"class": "exhausted", "provider": "mail"}, "limit": 7, "rate": 2.5, "reason": "the provider is back"}`

// aRedrive is one that stands as a test needs it.
func aRedrive(change func(*ledger.Redrive)) ledger.Redrive {
	r := ledger.Redrive{
		ID: "R1", By: "oncall", Role: "operator", Why: "the provider is back", Key: "key-canary", RequestHash: "hash-canary",
		Asked: `{"filter":{"class":"exhausted"},"limit":7,"rate":2.5,"permanent":false,"reason":"the provider is back"}`,
		State: ledger.RedriveRunning, Size: 2, Pace: 400 * time.Millisecond, Holder: "holder-canary", Version: 3,
		Created: testNow, Updated: testNow.Add(time.Second),
	}
	if change != nil {
		change(&r)
	}
	return r
}

// letter is a dead letter as a test needs it.
func deadLetter(change func(*ledger.Entry)) ledger.Entry {
	return entry(func(e *ledger.Entry) {
		e.State, e.Class, e.Reason, e.Code, e.Receipt, e.Version = ledger.Dead, ledger.ClassExhausted, ledger.ReasonBudgetSpent, "slow_down", "", 3
		if change != nil {
			change(e)
		}
	})
}

func willingDesks() desks {
	steered := func(_ context.Context, provider string, act ledger.Act) (ledger.Gate, error) {
		return ledger.Gate{Provider: provider, By: act.By}, nil
	}
	return desks{
		groups: func(context.Context, int) ([]ledger.Group, error) { return nil, nil },
		discard: func(context.Context, ledger.Identity, int64, ledger.Act) (ledger.Entry, error) {
			return entry(nil), nil
		},
		preview: func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{}, nil
		},
		redrive: func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error) {
			return aRedrive(nil), false, nil
		},
		redrives: func(context.Context, *ledger.RedrivePlace, int) ([]ledger.Redrive, error) { return nil, nil },
		show: func(context.Context, string) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{Redrive: aRedrive(nil)}, nil
		},
		stop:      func(context.Context, string, ledger.Act) (ledger.Redrive, error) { return aRedrive(nil), nil },
		audit:     func(context.Context, ledger.AuditQuery) ([]ledger.Act, error) { return nil, nil },
		providers: func(context.Context) ([]ledger.ProviderView, error) { return nil, nil },
		pause:     steered, resume: steered,
		erase: func(context.Context, string, ledger.Act) (int, error) { return 1, nil },
	}
}

// failingDesks fail with something to show all the same.
func failingDesks(err error) desks {
	steered := func(context.Context, string, ledger.Act) (ledger.Gate, error) {
		return ledger.Gate{Provider: "mail"}, err
	}
	return desks{
		groups: func(context.Context, int) ([]ledger.Group, error) { return nil, err },
		discard: func(context.Context, ledger.Identity, int64, ledger.Act) (ledger.Entry, error) {
			return entry(nil), err
		},
		preview: func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{}, err
		},
		redrive: func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error) {
			return aRedrive(nil), true, err
		},
		redrives: func(context.Context, *ledger.RedrivePlace, int) ([]ledger.Redrive, error) { return nil, err },
		show: func(context.Context, string) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{Redrive: aRedrive(nil)}, err
		},
		stop:      func(context.Context, string, ledger.Act) (ledger.Redrive, error) { return aRedrive(nil), err },
		audit:     func(context.Context, ledger.AuditQuery) ([]ledger.Act, error) { return nil, err },
		providers: func(context.Context) ([]ledger.ProviderView, error) { return nil, err },
		pause:     steered, resume: steered,
		erase: func(context.Context, string, ledger.Act) (int, error) { return 1, err },
	}
}
