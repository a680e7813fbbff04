//go:build race

package worlds_test

// raced : a world is explored by one goroutine alone, so the race detector has little to find in it.
const raced = true
