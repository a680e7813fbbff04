// Package ledger defines the entry, the ledger's one record of a reminder, and every transition of its state.
//
// A reminder is delivered many times and sent at most once. One row, the [Entry], guarantees this. Every
// transition is a pure function in this package: from what was read (an entry, and the ledger's now) and what
// is known ([Facts], [Rules], an [Outcome]) to what is to be written (a [Change]). A store only stores: it
// inserts a Change unless the identity exists, or updates where identity and version still match. So each rule
// exists once, for every database, and a decision can be replayed from its arguments.
//
// Invariants, checked by [Entry.Check] and again by the constraints of each schema:
//
//   - a holder and a lease are set exactly while an entry is sending;
//   - a due time is set exactly while it is waiting;
//   - a sent entry has a receipt, or the reason why there is none;
//   - an entry in doubt is never dead, and is dropped only if an operator abandoned it: only proof, an operator
//     or an explicit policy ends doubt;
//   - an outcome proves its own attempt only, and the zero [Outcome] is unknown, never "failed".
//
// What it does not do: it reads no clock, draws no random numbers, makes no calls and stores nothing. Where a
// decision needs something from outside (is the reminder still wanted? is there a slot at the provider?),
// [Decide] returns that as its [Step] and is called again with the result in [Facts].
package ledger
