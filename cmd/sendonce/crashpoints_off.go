//go:build !crashpoints

package main

import "github.com/sendonce/sendonce/internal/app"

// stamp marks the version of a build that may crash on purpose; this one can't.
const stamp = ""

func rig() app.Rig { return app.Rig{} }
