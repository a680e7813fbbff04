// Package sqlite keeps the ledger's rows in one SQLite file, for one process: to try things out, and
// for a gateway that needs no second machine.
//
// Invariants:
//
//   - a write is one transaction, flushed to the disk before it is answered (WAL, synchronous=FULL);
//   - one connection writes, so that no write meets another; a few others read;
//   - one process serves a file: a lock beside it refuses a second, and goes with its process;
//   - who held a lease when the file is opened is dead, so its lease ends there and then;
//   - times are microseconds, on a clock that is the store's own: ledger_now() is a Go function on this
//     store's connections alone.
//
// What it does not do: it decides nothing. It knows no state, no class and no outcome but as words to
// keep.
package sqlite
