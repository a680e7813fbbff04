// Package simulation runs the real desks, workers, fleets, sweeps, redrives and walks of several replicas over one ledger, in
// memory or in SQLite, inside a synctest bubble, against providers that know the truth and do not always tell it.
//
// A seed draws a scenario: who sends what and how often, who cancels, which replica crashes between any
// two steps, is paused past its lease, loses the reply of a commit or cannot reach the ledger, how the
// ledger's clock runs, when it fails over, which gate a person closes, what people decide of what may have been
// sent, and on what they saw when, what operators redrive, discard, erase and pause, how long what has come to rest
// is kept, what providers answer and report later, and how the configuration changes
// between two lives of a replica. Then the trouble ends, and everything has to come to rest.
//
// Invariants that every run checks, most of them at each write and each call:
//
//   - an entry's version rises by one with every write;
//   - a claim takes only what waits or is new, never what a cancel has forbidden, and in doubt only what
//     the same account may repeat; an attempt is settled by its own holder;
//   - a person's decision is carried out on the version that the person saw, or not at all;
//   - a call begins within its claim, once for each, before the deadline, before the end of the contract's
//     window less a margin, and not after a cancel took effect (a leap of the ledger's clock in between is
//     forgiven);
//   - no slot is given at a gate that the replica knows to be closed, or while it has not read the gates;
//   - an ack, and a 202, is given only for what stands in the ledger and is final, unknown or the ledger's own;
//   - other content under the same identity is told of as such;
//   - a person gets one reminder once, and once more for each risk that a policy or somebody took;
//   - there are no more calls than lines of attempts, late holders and lapses, and what a replica that
//     lived on learnt from a call stands in the timeline under its name;
//   - sent with a receipt was accepted, or somebody said so; dead and dropped never was, unless somebody had a
//     word in it; what a provider reported that it took is sent;
//   - two receipts in one story raise the alarm of a possible second send; a report is told once;
//   - what people were told that they decided stands in the audit once, what they were refused does not;
//   - a redrive puts to work what is dead, kept and as it was laid out, once; an item has one result, and what is told as
//     reopened was reopened; after a cancel nobody goes on past the item in hand;
//   - a claim and a call never follow on an erasure or a discard; an erasure leaves nothing of the person;
//   - what is purged or deleted was at rest for as long as is kept, and what comes again after that is refused for its age;
//   - everything comes to rest, or is unknown for a reason and its provider was asked; nothing waits past its
//     deadline and a lease;
//   - every slot is given back.
//
// Beside it stand histories: short stories of one quiet replica, each for one rule.
//
// More seeds than the ordinary run's, and a long run that stopped, to go on:
//
//	go test ./internal/simulation -run TestWhatever -timeout 0 -v -simulation.seeds=1000000
//	go test ./internal/simulation -run TestWhatever -timeout 0 -v -simulation.first=412000 -simulation.seeds=588000
//
// What it does not do: a replica's own clock cannot run apart from another's, since a bubble has one; the
// ledger's does instead. A seed gives every actor the same luck, and everything happens at an instant of its
// own on one processor; but the pauses between the worker's and the sweep's looks are drawn by the runtime, so a
// seed replays a scenario and not each interleaving: repeat it.
package simulation
