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

// What a test sets. The first is its word that it is one; see [crashpoint.Arm].
const (
	ordersVariable = "SENDONCE_CRASHPOINTS"
	clockVariable  = "SENDONCE_CLOCK_OFFSET" // whole seconds, such as -10m
)

// Rig puts crash points and a wrong clock around the rooms.
type Rig struct {
	Env func(string) (string, bool)

	points *crashpoint.Points
	clock  *crashpoint.Clock
}

func (r Rig) ready(log *slog.Logger) (Rig, error) {
	if r.Env == nil {
		return Rig{}, errors.New("this build has crash points, for tests of 'serve'")
	}
	orders, isTest := r.Env(ordersVariable)
	if !isTest {
		return Rig{}, errors.New("this build has crash points, for tests; a test sets " + ordersVariable + ", to \"none\" if it has nothing else to say")
	}
	r.clock = new(crashpoint.Clock)
	if offset, set := r.Env(clockVariable); set {
		by, err := time.ParseDuration(offset)
		if err != nil {
			return Rig{}, fmt.Errorf("%s: %w", clockVariable, err)
		}
		r.clock.Jump(by)
	}
	var err error
	r.points, err = crashpoint.Arm(orders, r.clock, func(at crashpoint.Point, what string) {
		log.Warn("crash point", "point", string(at), "does", what)
	})
	log.Warn("this build has crash points, and is a test", "orders", orders)
	return r, err
}

func (r Rig) now() time.Time { return r.clock.Now() }

func (r Rig) store(s store) store { return crashingStore{s, r.points} }

func (r Rig) desk(d *deliver.Desk) *deliver.Desk {
	d.Sender = crashingSender{d.Sender, r.points}
	return d
}

func (r Rig) surface(o api.Options) api.Options {
	o.Deliver = crashingDeliverer{o.Deliver, r.points}
	wrap := o.Wrap
	o.Wrap = func(next http.Handler) http.Handler { return wrap(r.points.Answers(next)) }
	o.Now = r.now
	return o
}

type crashingStore struct {
	store
	points *crashpoint.Points
}

func (s crashingStore) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.points.Write(c, func() (ledger.Entry, error) { return s.store.Create(ctx, c) })
}

func (s crashingStore) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.points.Write(c, func() (ledger.Entry, error) { return s.store.Swap(ctx, c) })
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
