//go:build !crashpoints

package app

import (
	"log/slog"
	"time"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/internal/deliver"
)

// Rig is what a build with crash points puts around the rooms. In this one it is nothing.
type Rig struct{}

func (Rig) ready(*slog.Logger) (Rig, error)    { return Rig{}, nil }
func (Rig) now() time.Time                     { return time.Now() }
func (Rig) store(s store) store                { return s }
func (Rig) desk(d *deliver.Desk) *deliver.Desk { return d }
func (Rig) surface(o api.Options) api.Options  { return o }
