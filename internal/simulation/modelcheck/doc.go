// Package modelcheck explores small scenarios exhaustively: one reminder, every actor that may change it, and every
// order in which they may act, over the real transitions of package ledger.
//
// The actors are two deliveries of a broker that redelivers after a nack, the worker, the sweep, a cancel, an operator,
// the lookups at a provider that supports them, and a provider's late status event. Each proceeds as the packages do,
// one call to the store or to the provider at a time. Between any two steps another actor may go first, and time may
// pass to the next moment that matters. Once in a scenario a task may crash, the reply of a commit be lost, and a
// provider not find a message that it accepted. A scenario is one contract, one policy for unknown entries, the
// response to the first call (later ones get any response that matters), whether there is a deadline, and whether the
// provider's account changes.
//
// Other scenarios begin with a dead letter. Two redrives of it, or two replicas at one item, run beside the worker, the
// sweep, the lookups and, in some, a delivery. And one of these happens: an operator discards the dead letter or erases
// its user, or a purge run deletes its payload, or its entry once that is older than the memory, which may be longer for
// whoever delivers it again. A crash may then also fall between the write of the entry and the write of its item.
//
// Invariants, after every step of every scenario:
//
//   - an accepted send that the provider does not recognise as a repeat is the only one since the timeline last
//     recorded that the risk of another was taken: by a policy that says so, or by an operator who saw the entry as it
//     was;
//   - a call begins only under its own claim, before the deadline, and not after a cancel took effect; no claim is made
//     once the budget is spent or too many leases have expired;
//   - the entry passes its own check, and a write names the version that was read;
//   - proof of acceptance makes an entry sent, and nothing leaves sent; an entry that is dead or dropped was not sent,
//     unless an operator abandoned it; an entry that is sent with a receipt was sent;
//   - one call is recorded once; an ack is given only for an entry that is stored and is final, unknown or the ledger's
//     own, and stays so; a task that processes a due entry changes it;
//   - a redrive makes a dead letter wait again once, at the version at which the redrive was created and while its
//     payload is stored; an item's result is what was written; what is purged was final for long enough, and what
//     arrives again after its entry was deleted is dropped, by the memory or by the low-water mark alone;
//   - when no actor has anything left to do, the entry is final or waits for an operator, and nothing that was acked is
//     missing; and no path is endless, except for a task that is too late for its call each time.
//
// States are distinguished by what can still make a difference: times count from now, all past times are alike, tokens
// have no names, the two deliveries have no order, and counters that decide nothing are left out. Steps whose order
// makes no difference are taken as one: a write over an outdated version fails and changes nothing, so an actor that
// holds one goes straight to what follows on the failure; and a read is followed by its write at once, or after time
// has passed. No state is skipped by sampling.
//
// What it does not do: it does not run the code of the other packages, only package ledger; their steps are repeated
// here, as internal/deliver, internal/reconcile and internal/redrive perform them. Slots, payloads and relevance checks
// succeed, except in the scenario in which the first slot is refused. A broker whose timeout passes during a task is the
// second delivery. The provider accepts at the moment of the call. The store loses nothing.
package modelcheck
