//go:build !crashpoints

package main

import "github.com/sendonce/sendonce/internal/app"

// versionSuffix marks the version of a build with crash points; this one has none.
const versionSuffix = ""

func testHooks() app.TestHooks { return app.TestHooks{} }
