// Package blackbox holds tests that run the built binary: real processes, a provider in another process, real
// databases, and only HTTP and signals to communicate with them.
//
// Invariants: a test knows the gateway by its documented interface alone; every process that a test starts
// ends with it; where PostgreSQL is missing the tests fail.
//
// What it does not do: it exports nothing, and no other package uses it.
package blackbox
