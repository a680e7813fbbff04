//go:build crashpoints

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/internal/crashpoint"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Environment variables that a test sets. The first one must be set; see [crashpoint.Arm] for its value.
const (
	ordersVariable = "SENDONCE_CRASHPOINTS"
	clockVariable  = "SENDONCE_CLOCK_OFFSET" // whole seconds, such as -10m
)

// TestHooks wraps the components with crash points, and sets a wrong clock.
type TestHooks struct {
	Env func(string) (string, bool)

	points *crashpoint.Points
	clock  *crashpoint.Clock
}

func (h TestHooks) ready(log *slog.Logger) (TestHooks, error) {
	if h.Env == nil {
		return TestHooks{}, errors.New("this build has crash points, which only 'serve' supports")
	}
	orders, isTest := h.Env(ordersVariable)
	if !isTest {
		return TestHooks{}, errors.New("this build has crash points, for tests; set " + ordersVariable + ", to \"none\" for no crash point")
	}
	h.clock = new(crashpoint.Clock)
	if offset, set := h.Env(clockVariable); set {
		jump, err := time.ParseDuration(offset)
		if err != nil {
			return TestHooks{}, fmt.Errorf("%s: %w", clockVariable, err)
		}
		h.clock.Jump(jump)
	}
	var err error
	h.points, err = crashpoint.Arm(orders, h.clock, func(at crashpoint.Point, action string) {
		log.Warn("crash point", "point", string(at), "action", action)
	})
	log.Warn("crash points are enabled, this is a test", "orders", orders)
	return h, err
}

func (h TestHooks) now() time.Time { return h.clock.Now() }

func (h TestHooks) store(s store) store { return crashingStore{s, h.points} }

func (h TestHooks) deliverer(d *deliver.Deliverer) *deliver.Deliverer {
	d.Sender = crashingSender{d.Sender, h.points}
	return d
}

func (h TestHooks) api(o api.Options) api.Options {
	o.Deliver = crashingDeliverer{o.Deliver, h.points}
	wrap := o.Wrap
	o.Wrap = func(next http.Handler) http.Handler { return wrap(h.points.Answers(next)) }
	o.Now = h.now
	return o
}

type crashingStore struct {
	store
	points *crashpoint.Points
}

func (s crashingStore) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.points.Write(c, func() (ledger.Entry, error) { return s.store.Insert(ctx, c) })
}

func (s crashingStore) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.points.Write(c, func() (ledger.Entry, error) { return s.store.Update(ctx, c) })
}

type crashingSender struct {
	deliver.Sender
	points *crashpoint.Points
}

func (s crashingSender) Send(ctx context.Context, provider string, sh ledger.Shipment) ledger.Outcome {
	return s.points.Call(ctx, func(ctx context.Context) ledger.Outcome { return s.Sender.Send(ctx, provider, sh) })
}

type crashingDeliverer struct {
	api.Deliverer
	points *crashpoint.Points
}

func (d crashingDeliverer) Deliver(ctx context.Context, del ledger.Delivery) (ledger.Reply, error) {
	d.points.Pass(crashpoint.Opened)
	return d.Deliverer.Deliver(ctx, del)
}
