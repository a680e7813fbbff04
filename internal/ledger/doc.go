// Package ledger is the heart: what an entry is, and every way in which it may change.
//
// A reminder arrives many times and is sent at most once. The one row that holds that promise is the
// [Entry]; everything that can happen to it is a pure function in this package, from what was read
// (an entry, and the ledger's now) and what is known ([Facts], [Rules], an [Outcome]) to what is to be
// written (a [Change]). A store only stores: it inserts a Change unless the identity exists, or updates
// where identity and version still match. So each rule exists once, for every database, and a decision
// can be replayed from its arguments.
//
// Invariants, said again by [Entry.Check] and by the constraints of each schema:
//
//   - a holder and a lease are set exactly while an entry is sending;
//   - a due time is set exactly while it is waiting;
//   - a sent entry has a receipt, or the reason why there is none;
//   - an entry in doubt is never dead, nor dropped unless a person abandoned it: only proof, a person or an
//     explicit policy ends doubt;
//   - an outcome proves its own attempt only, and the zero [Outcome] is unknown, never "failed".
//
// What it does not do: it reads no clock, draws no random numbers, calls nobody and stores nothing.
// When a question must be asked on the way (is the reminder still wanted? is there a slot at the
// provider?), [Meet] says so in its [Step] and is called again with the answer.
package ledger
