//go:build race

package simulation_test

// defaultSeeds is how many seeds run by default: the race detector takes ten times as long.
const defaultSeeds = 250
