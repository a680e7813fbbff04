//go:build crashpoints

package main

import (
	"os"

	"github.com/sendonce/sendonce/internal/app"
)

// stamp marks the version of this build, which crashes where a test tells it to.
const stamp = " with crash points, for tests"

func rig() app.Rig { return app.Rig{Env: os.LookupEnv} }
