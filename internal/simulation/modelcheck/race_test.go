//go:build race

package modelcheck_test

// underRace reduces the set: one goroutine explores a scenario, so the race detector has little to find.
const underRace = true
