// Package sqlite stores the ledger in one SQLite file for one process: for trying things out, and for a gateway that
// runs on a single machine.
//
// Invariants:
//
//   - a write is one transaction, flushed to disk before it returns (WAL, synchronous=FULL);
//   - one connection writes, so that writes never conflict; a few others read;
//   - one process uses a file: a lock file next to it refuses a second process, and is released when the process ends;
//   - leases that are open when the file is opened belong to a dead process, so they expire at once;
//   - times are microseconds of the store's own clock: ledger_now() is a Go function that is registered with the
//     connections of this store alone.
//
// What it does not do: it makes no decisions. States, classes and outcomes are strings that it stores.
package sqlite
