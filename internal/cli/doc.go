// Package cli holds what people do with a gateway from a command line: for now the rehearsal of the
// dangerous paths: a provider takes a message and nobody hears of it, and a batch is put to work again.
//
// A [Rehearsal] runs the program itself as a child, on a ledger of its own, against a provider of its own,
// and ends it in the middle; a [Staging] walks the same path through a gateway that is running already,
// whose provider is a sandbox. Both tell what happened and judge it; then both have a batch of their own dead
// letters redriven twice, a [Rehearsal] over a crash in the middle of the first, and judge that too.
//
// Invariants: a [Rehearsal] takes over spans, promises and policies from a configuration, and has no field
// for an address, a header or a secret of a provider, so it cannot reach one; it never opens the database
// that a configuration names, only one that stands beside it for rehearsals; the child ends with it (with a kill -9 of the
// parent too, on Linux).
//
// What it does not do: it reads no configuration, flags or environment, decides nothing about a delivery, and
// knows the gateway by its documented surface alone.
package cli
