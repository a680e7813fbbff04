package api

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// adminFakes are the fake services of the admin API, each a function that a test may set.
type adminFakes struct {
	groups        func(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error)
	discard       func(context.Context, ledger.Identity, int64, ledger.AuditEvent) (ledger.Entry, error)
	preview       func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error)
	redrive       func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error)
	redrives      func(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error)
	show          func(ctx context.Context, id string) (ledger.RedriveReport, error)
	cancelRedrive func(ctx context.Context, id string, audit ledger.AuditEvent) (ledger.Redrive, error)
	audit         func(context.Context, ledger.AuditQuery) ([]ledger.AuditEvent, error)
	providers     func(context.Context) ([]ledger.ProviderStatus, error)
	pause         func(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error)
	resume        func(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error)
	erase         func(ctx context.Context, userID string, audit ledger.AuditEvent) (int, error)
}

func (c *fakeServices) DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error) {
	c.uncalled("Groups", c.groups == nil)
	return c.groups(ctx, limit)
}

func (c *fakeServices) Discard(ctx context.Context, id ledger.Identity, version int64, audit ledger.AuditEvent) (ledger.Entry, error) {
	c.uncalled("Discard", c.discard == nil)
	return c.discard(ctx, id, version, audit)
}

func (c *fakeServices) Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error) {
	c.uncalled("Redrives", c.redrives == nil)
	return c.redrives(ctx, after, limit)
}

func (c *fakeServices) Show(ctx context.Context, id string) (ledger.RedriveReport, error) {
	c.uncalled("Show", c.show == nil)
	return c.show(ctx, id)
}

func (c *fakeServices) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error) {
	c.uncalled("Audit", c.audit == nil)
	return c.audit(ctx, q)
}

func (c *fakeServices) Providers(ctx context.Context) ([]ledger.ProviderStatus, error) {
	c.uncalled("Providers", c.providers == nil)
	return c.providers(ctx)
}

func (c *fakeServices) Pause(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error) {
	c.uncalled("Pause", c.pause == nil)
	return c.pause(ctx, provider, audit)
}

func (c *fakeServices) Resume(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error) {
	c.uncalled("Resume", c.resume == nil)
	return c.resume(ctx, provider, audit)
}

func (c *fakeServices) Erase(ctx context.Context, userID string, audit ledger.AuditEvent) (int, error) {
	c.uncalled("Erase", c.erase == nil)
	return c.erase(ctx, userID, audit)
}

// fakeRedriver has the methods whose names other services have too.
type fakeRedriver struct{ c *fakeServices }

func (d fakeRedriver) Preview(ctx context.Context, request ledger.RedriveRequest) (ledger.RedriveReport, error) {
	d.c.uncalled("Preview", d.c.preview == nil)
	return d.c.preview(ctx, request)
}

func (d fakeRedriver) Start(ctx context.Context, request ledger.RedriveRequest) (ledger.Redrive, bool, error) {
	d.c.uncalled("Start of a redrive", d.c.redrive == nil)
	return d.c.redrive(ctx, request)
}

func (d fakeRedriver) Cancel(ctx context.Context, id string, audit ledger.AuditEvent) (ledger.Redrive, error) {
	d.c.uncalled("Cancel of a redrive", d.c.cancelRedrive == nil)
	return d.c.cancelRedrive(ctx, id, audit)
}

const aRedriveRequest = `{"filter": {"class": "exhausted", "provider": "mail"}, "limit": 7, "rate": 2.5, "reason": "the provider is back"}`

// aRedrive returns a running redrive, changed as a test needs it.
func aRedrive(change func(*ledger.Redrive)) ledger.Redrive {
	r := ledger.Redrive{
		ID: "R1", Actor: "oncall", Role: "operator", Reason: "the provider is back", IdempotencyKey: "key-canary", RequestHash: "hash-canary",
		Request: `{"filter":{"class":"exhausted"},"limit":7,"rate":2.5,"permanent":false,"reason":"the provider is back"}`,
		State:   ledger.RedriveRunning, Size: 2, Interval: 400 * time.Millisecond, Holder: "holder-canary", Version: 3,
		Created: testNow, Updated: testNow.Add(time.Second),
	}
	if change != nil {
		change(&r)
	}
	return r
}

// deadLetter returns a dead letter, changed as a test needs it.
func deadLetter(change func(*ledger.Entry)) ledger.Entry {
	return entry(func(e *ledger.Entry) {
		e.State, e.Class, e.Reason, e.Code, e.Receipt, e.Version = ledger.Dead, ledger.ClassExhausted, ledger.ReasonBudgetSpent, "slow_down", "", 3
		if change != nil {
			change(e)
		}
	})
}

// workingAdmin returns fakes that succeed.
func workingAdmin() adminFakes {
	setPaused := func(_ context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error) {
		return ledger.Gate{Provider: provider, Actor: audit.Actor}, nil
	}
	return adminFakes{
		groups: func(context.Context, int) ([]ledger.DeadLetterGroup, error) { return nil, nil },
		discard: func(context.Context, ledger.Identity, int64, ledger.AuditEvent) (ledger.Entry, error) {
			return entry(nil), nil
		},
		preview: func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{}, nil
		},
		redrive: func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error) {
			return aRedrive(nil), false, nil
		},
		redrives: func(context.Context, *ledger.RedrivePosition, int) ([]ledger.Redrive, error) { return nil, nil },
		show: func(context.Context, string) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{Redrive: aRedrive(nil)}, nil
		},
		cancelRedrive: func(context.Context, string, ledger.AuditEvent) (ledger.Redrive, error) { return aRedrive(nil), nil },
		audit:         func(context.Context, ledger.AuditQuery) ([]ledger.AuditEvent, error) { return nil, nil },
		providers:     func(context.Context) ([]ledger.ProviderStatus, error) { return nil, nil },
		pause:         setPaused, resume: setPaused,
		erase: func(context.Context, string, ledger.AuditEvent) (int, error) { return 1, nil },
	}
}

// failingAdmin returns fakes that fail, but with a result that must not be shown.
func failingAdmin(err error) adminFakes {
	setPaused := func(context.Context, string, ledger.AuditEvent) (ledger.Gate, error) {
		return ledger.Gate{Provider: "mail"}, err
	}
	return adminFakes{
		groups: func(context.Context, int) ([]ledger.DeadLetterGroup, error) { return nil, err },
		discard: func(context.Context, ledger.Identity, int64, ledger.AuditEvent) (ledger.Entry, error) {
			return entry(nil), err
		},
		preview: func(context.Context, ledger.RedriveRequest) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{}, err
		},
		redrive: func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error) {
			return aRedrive(nil), true, err
		},
		redrives: func(context.Context, *ledger.RedrivePosition, int) ([]ledger.Redrive, error) { return nil, err },
		show: func(context.Context, string) (ledger.RedriveReport, error) {
			return ledger.RedriveReport{Redrive: aRedrive(nil)}, err
		},
		cancelRedrive: func(context.Context, string, ledger.AuditEvent) (ledger.Redrive, error) { return aRedrive(nil), err },
		audit:         func(context.Context, ledger.AuditQuery) ([]ledger.AuditEvent, error) { return nil, err },
		providers:     func(context.Context) ([]ledger.ProviderStatus, error) { return nil, err },
		pause:         setPaused, resume: setPaused,
		erase: func(context.Context, string, ledger.AuditEvent) (int, error) { return 1, err },
	}
}
