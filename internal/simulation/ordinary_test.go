//go:build !race

package simulation_test

// ordinary is how many seeds run where nobody says how many.
const ordinary = 10_000
