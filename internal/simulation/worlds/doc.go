// Package worlds explores small worlds to their last state: one reminder, everybody who may touch it, and
// every order in which they may do so, over the real transitions of package ledger.
//
// The actors are two deliveries of a broker that brings back what is nacked, the worker, the sweep, a cancel,
// a person, the questions to a provider that can be asked, and a provider's own late report. Each goes its way as
// the rooms go it, one call to the store or the provider at a time; between any two steps another may go first,
// time may pass to the next moment that matters, and, once in a world, a visitor may vanish, a commit's reply
// be lost, and a provider not find what it took. A world is one contract, one policy for what is unknown, what
// the first call meets (later ones meet anything that matters), whether there is a deadline, and whether the
// provider's account changes.
//
// Other worlds begin with a dead letter. Two redrives of it, or two replicas at one item, go their way beside the worker,
// the sweep, the questions and, in some, a delivery; and one of these happens: a person discards it, or erases whom
// it was for, or a walk takes its payload, or its entry, once that is older than the memory. A crash there may also
// fall between an entry's write and its item's.
//
// Invariants, after every step of every world:
//
//   - an accepted send that is not known again by the provider is the only one since the timeline last said
//     that the risk of another was taken: by a policy that says so, or by a person who saw the entry as it stood;
//   - a call begins only under its own claim, before the deadline, and not after a cancel took effect; no claim
//     is made once the budget is spent or too many holders went silent;
//   - the entry agrees with its own check, and a write names the version that was read;
//   - proof of acceptance ends in sent, and nothing leaves sent; what is dead or dropped was not sent, unless
//     a person abandoned it; what is sent with a receipt was;
//   - one call is told once; an ack is given only for what stands and is final, unknown or the ledger's own, and
//     stays so; whoever visits what is due moves it;
//   - a redrive puts a dead letter to work once, as it was laid out and while its payload is kept; what an item says is
//     what was written; what is forgotten was at rest for long enough, and what comes again after its entry was
//     deleted is dropped;
//   - where nobody has anything left to do, the entry has come to rest or waits for a person, and nothing that
//     was acked is missing; and no path goes on for ever, but for a visitor that is too late for its call each time.
//
// States are told apart by what can still make a difference: times count from now, a past moment is past,
// tokens have no names, two deliveries have no order, and counters that decide nothing are left out. Steps whose
// order nobody could tell are taken in one: a write over a version that has passed fails and moves nothing, so
// whoever holds one goes straight to what follows on the failure; and a reading is followed by its write at once,
// or by time. No state is sampled away.
//
// What it does not do: the rooms' own code does not run here, only the heart's; their ways are walked again
// step by step, as internal/deliver and internal/reconcile go them. Slots, payloads and the question of
// relevance come out well, but for the world in which the first slot is refused. A broker whose patience ends
// while a visit goes on is the second delivery. The provider accepts in the instant of the call. The store forgets
// nothing.
package worlds
