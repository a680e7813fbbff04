//go:build !race

package simulation_test

// defaultSeeds is how many seeds run by default.
const defaultSeeds = 10_000
