// Package simulation runs the real deliverers, workers, provider pools, reconcilers, redrivers and purgers of several
// replicas over one ledger, in memory or in SQLite, inside a synctest bubble, against simulated providers that record
// the truth and do not always report it.
//
// A seed draws a scenario: who sends what and how often, who cancels, which replica crashes between any two steps, is
// paused past its lease, loses the reply of a commit or cannot reach the ledger, how the ledger's clock runs, when it
// fails over, which gate an operator closes, what operators decide about unknown entries and on which version, what
// they redrive, discard, erase and pause, how long final entries are kept, how providers answer and what they report
// later, and how the configuration changes between two lives of a replica. Then the faults end, and everything has to
// come to rest.
//
// Invariants that every run checks, most of them at each write and each call:
//
//   - an entry's version rises by one with every write;
//   - a claim takes only an entry that is new or waiting, never one that a cancel has forbidden, and in doubt only what
//     the same account may repeat; an attempt is settled by its own holder;
//   - an operator's decision is carried out on the version that the operator saw, or not at all;
//   - a call begins within its claim, once for each, before the deadline, before the end of the contract's window less a
//     margin, and not after a cancel took effect (a jump of the ledger's clock in between is allowed for);
//   - no slot is given at a gate that the replica knows to be closed, or before it has loaded the gates;
//   - an ack or a 202 is given only for an entry that is stored and is final, unknown or the ledger's own;
//   - other content under the same identity is reported as a conflict;
//   - a recipient gets one reminder once, and once more for each risk that a policy or an operator took;
//   - there are no more calls than events of attempts, late holders and expired leases, and an outcome that a surviving
//     replica received is in the timeline under its holder;
//   - an entry that is sent with a receipt was accepted, or somebody said so; one that is dead or dropped never was,
//     unless an operator decided about it; one whose provider reported that it accepted it is sent;
//   - two receipts in one timeline come with an event for a possible second send; a status event is recorded once;
//   - a decision that was confirmed to an operator is in the audit once, a refused one is not;
//   - a redrive makes an entry wait again that is dead, has its payload and is unchanged since the redrive was created,
//     and does so once; an item has one result, and an item reported as redriven was redriven; after a cancel no replica
//     goes on past the item in hand;
//   - no claim and no call follows on an erasure or a discard; an erasure leaves no personal data;
//   - what is purged or deleted was final for as long as it is to be kept, and what arrives again after that is refused
//     for its age;
//   - everything comes to rest, or is unknown for a reason and its provider was asked; nothing waits past its deadline
//     and a lease;
//   - every slot is released.
//
// Beside the simulation there are tests of single rules, each with one replica and no random faults.
//
// More seeds than by default, and how to resume a long run that stopped:
//
//	go test ./internal/simulation -run TestSimulation -timeout 0 -v -simulation.seeds=1000000
//	go test ./internal/simulation -run TestSimulation -timeout 0 -v -simulation.first=412000 -simulation.seeds=588000
//
// What it does not do: the clocks of two replicas cannot differ, since a bubble has one; the ledger's clock does
// instead. A seed gives every actor the same random numbers, and everything happens at an instant of its own on one
// processor; but the pauses between polls of the worker and the sweep are drawn by the runtime, so a seed replays a
// scenario and not each interleaving: repeat it.
package simulation
