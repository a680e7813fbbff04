// Package postgres keeps the ledger's rows in PostgreSQL, or in a distributed database that speaks its
// dialect.
//
// Invariants:
//
//   - a write is one statement: one round trip, one commit, and nothing beside an entry that was not
//     written;
//   - ErrExists and ErrStale mean that the server said so; an error at any point of a write, the end of
//     its context too, says nothing about whether the write happened;
//   - the clock that fixes and judges moments is the database's, through ledger_now();
//   - errors are told apart by SQLSTATE alone;
//   - each unit of work takes one connection, and waits for it only so long.
//
// What it does not do: it decides nothing. It knows no state, no class and no outcome but as words to
// keep.
package postgres
