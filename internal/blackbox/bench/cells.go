package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// cell is one thing that is measured once a round.
type cell struct {
	name   string
	what   string   // in a line
	floors []string // the cells that it is compared with
	run    func(ctx context.Context, round int) (sample, error)
}

// cells are all that is measured, each floor beside what is compared with it.
func (l *laboratory) cells() []cell {
	span := l.span()
	many := strconv.Itoa(l.connections)
	commits := func(script string, clients, series int) func(context.Context, int) (sample, error) {
		return func(ctx context.Context, round int) (sample, error) {
			return l.bench(ctx, l.floorURL, newKey+script, clients, "i=0", fmt.Sprintf("round=%d", 1+3*round+series))
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
			return deliver(ctx, g.address, l.connections, span, func() int64 { return rand.Int64N(sent) + 1 })
		}
	}
	const (
		pgRead, pgBare, pgSelect, pgOne = "pg floor: read, 2 commits", "pg floor: 2 commits", "pg floor: select", "pg floor: read, 2 commits, 1 client"
		liteCommits, liteSelect         = "sqlite floor: 2 commits", "sqlite floor: select"
	)
	return []cell{
		{pgRead, "pgbench, " + many + " clients: select by key, insert, update, each its own transaction", nil, commits(readEntry+claimAndSettle, l.connections, 0)},
		{"pg gateway: first", many + " connections, each delivery a new reminder, sent by webhook to another process", []string{pgRead, pgBare}, first(l.postgres, l.connections)},
		{pgBare, "the same without the select", nil, commits(claimAndSettle, l.connections, 1)},
		{"pg gateway: duplicate", many + " connections, each delivery one of a reminder that is sent, at random", []string{pgSelect}, duplicate(l.postgres)},
		{pgSelect, "pgbench, " + many + " clients: select by key of the same entries", nil, func(ctx context.Context, _ int) (sample, error) {
			return l.bench(ctx, l.postgresURL, readSent, l.connections, fmt.Sprintf("sent=%d", l.postgres.ids.Load()))
		}},
		{pgOne, "the first floor with 1 client", nil, commits(readEntry+claimAndSettle, 1, 2)},
		{"pg gateway: first, 1 conn", "1 connection: latency without company", []string{pgOne}, first(l.postgres, 1)},
		{liteCommits, "1 goroutine, the gateway's driver and schema: insert, update, each its own transaction", nil, func(ctx context.Context, _ int) (sample, error) {
			return l.floor.commits(ctx, span)
		}},
		{"sqlite gateway: first", many + " connections, as above", []string{liteCommits}, first(l.sqlite, l.connections)},
		{"sqlite gateway: first, 1 conn", "1 connection", []string{liteCommits}, first(l.sqlite, 1)},
		{"sqlite gateway: duplicate", many + " connections, as above", []string{liteSelect}, duplicate(l.sqlite)},
		{liteSelect, fmt.Sprintf("%d goroutines, the gateway's driver: select by key", sqliteReaders), nil, func(ctx context.Context, _ int) (sample, error) {
			return l.floor.reads(ctx, span)
		}},
	}
}
