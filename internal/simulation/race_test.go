//go:build race

package simulation_test

// ordinary is how many seeds run where nobody says how many: the detector takes ten times as long.
const ordinary = 250
