//go:build !race

package modelcheck_test

const underRace = false
