package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// cell is one measurement, taken once a round.
type cell struct {
	name        string
	description string   // one line for the report
	baselines   []string // the cells that it is compared with
	run         func(ctx context.Context, round int) (sample, error)
}

// cells returns all measurements, each baseline beside what is compared with it.
func (e *environment) cells() []cell {
	span := e.span()
	many := strconv.Itoa(e.connections)
	commits := func(script string, clients, series int) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, round int) (sample, error) {
			return e.bench(ctx, e.baselineURL, newKey+script, clients, "i=0", fmt.Sprintf("round=%d", 1+3*round+series))
		}
	}
	first := func(g *gateway, connections int) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, _ int) (sample, error) {
			return deliver(ctx, g.address, connections, span, func() int64 { return g.ids.Add(1) })
		}
	}
	duplicate := func(g *gateway) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, _ int) (sample, error) {
			sent := g.ids.Load()
			return deliver(ctx, g.address, e.connections, span, func() int64 { return rand.Int64N(sent) + 1 })
		}
	}
	const (
		pgRead, pgBare, pgSelect, pgOne = "pg baseline: read, 2 commits", "pg baseline: 2 commits", "pg baseline: select", "pg baseline: read, 2 commits, 1 client"
		liteCommits, liteSelect         = "sqlite baseline: 2 commits", "sqlite baseline: select"
	)
	return []cell{
		{pgRead, "pgbench, " + many + " clients: select by key, insert, update, each its own transaction", nil, commits(readEntry+claimAndSettle, e.connections, 0)},
		{"pg gateway: first", many + " connections, each delivery a new reminder, sent by webhook to another process", []string{pgRead, pgBare}, first(e.postgres, e.connections)},
		{pgBare, "the same without the select", nil, commits(claimAndSettle, e.connections, 1)},
		{"pg gateway: duplicate", many + " connections, each delivery one of a reminder that is sent, at random", []string{pgSelect}, duplicate(e.postgres)},
		{pgSelect, "pgbench, " + many + " clients: select by key of the same entries", nil, func(ctx context.Context, _ int) (sample, error) {
			return e.bench(ctx, e.postgresURL, readSent, e.connections, fmt.Sprintf("sent=%d", e.postgres.ids.Load()))
		}},
		{pgOne, "the first baseline with 1 client", nil, commits(readEntry+claimAndSettle, 1, 2)},
		{"pg gateway: first, 1 conn", "1 connection: latency without concurrency", []string{pgOne}, first(e.postgres, 1)},
		{liteCommits, "1 goroutine, the gateway's driver and schema: insert, update, each its own transaction", nil, func(ctx context.Context, _ int) (sample, error) {
			return e.baseline.commits(ctx, span)
		}},
		{"sqlite gateway: first", many + " connections, as above", []string{liteCommits}, first(e.sqlite, e.connections)},
		{"sqlite gateway: first, 1 conn", "1 connection", []string{liteCommits}, first(e.sqlite, 1)},
		{"sqlite gateway: duplicate", many + " connections, as above", []string{liteSelect}, duplicate(e.sqlite)},
		{liteSelect, fmt.Sprintf("%d goroutines, the gateway's driver: select by key", sqliteReaders), nil, func(ctx context.Context, _ int) (sample, error) {
			return e.baseline.reads(ctx, span)
		}},
	}
}
