// Package house keeps the walls of the house as an ordinary test: which room may know which, and what
// no room may do.
//
// Each rule is a function over a source tree, so it is run on the real one and on little made-up ones
// that break it: a rule that bites nothing is no rule. A room is a directory with Go files; [plan] holds
// all that may exist, whether they do yet or not.
//
// What it does not do: it does not load dependencies or judge style; vet, staticcheck and gofumpt do.
package house
