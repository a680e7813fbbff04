//go:build crashpoints

package main

import (
	"os"

	"github.com/sendonce/sendonce/internal/app"
)

// versionSuffix marks the version of a build with crash points; this is one.
const versionSuffix = " with crash points, for tests"

func testHooks() app.TestHooks { return app.TestHooks{Env: os.LookupEnv} }
