// Package rehearsal runs the riskiest failure scenarios against a gateway and checks the result: a provider accepts a
// message and its answer is lost, and a batch of dead letters is redriven twice.
//
// A [Rehearsal] runs the program itself as a child process, with its own ledger and a fake provider, and kills it in the
// middle; a [Staging] runs the same scenario through a gateway that is already running and whose provider is a sandbox.
// Both print what happened and a verdict. Then both redrive a batch of their own dead letters twice, a [Rehearsal] with
// a crash in the middle of the first redrive, and print a verdict on that too.
//
// Invariants: a [Rehearsal] takes durations, promises and policies from a configuration and has no field for an address,
// a header or a secret of a provider, so it cannot reach one; it never opens the database that a configuration names,
// only a separate one for rehearsals; the child process ends with it (on Linux also if the parent is killed with -9).
//
// What it does not do: it reads no configuration, flags or environment, makes no decision about a delivery, and uses
// only the documented interface of the gateway.
package rehearsal
