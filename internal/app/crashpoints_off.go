//go:build !crashpoints

package app

import (
	"log/slog"
	"time"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/internal/deliver"
)

// TestHooks is what a build with crash points wraps the components with. In this build it does nothing.
type TestHooks struct{}

func (TestHooks) ready(*slog.Logger) (TestHooks, error)             { return TestHooks{}, nil }
func (TestHooks) now() time.Time                                    { return time.Now() }
func (TestHooks) store(s store) store                               { return s }
func (TestHooks) deliverer(d *deliver.Deliverer) *deliver.Deliverer { return d }
func (TestHooks) api(o api.Options) api.Options                     { return o }
