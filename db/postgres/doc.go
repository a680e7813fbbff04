// Package postgres stores the ledger in PostgreSQL, or in a distributed database with the same dialect.
//
// Invariants:
//
//   - a write of an entry is one statement: one round trip and one commit, and nothing that belongs to the entry is
//     written unless the entry is;
//   - ErrExists and ErrStale mean that the server reported it; any other error of a write, including the end of its
//     context, does not say whether the write happened;
//   - the clock that sets and compares moments is the database's, through ledger_now();
//   - errors are distinguished by SQLSTATE alone;
//   - each unit of work uses one connection, and the wait for it is bounded.
//
// What it does not do: it makes no decisions. States, classes and outcomes are strings that it stores.
package postgres
