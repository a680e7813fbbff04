package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

const (
	supportToken  = "bench-support-0123456789"
	operatorToken = "bench-operator-0123456789"
)

// runAdmin measures the reads of support and operators on a ledger that has grown: each query on a small and
// on a large ledger, and deliveries during a purge and a redrive, compared with deliveries alone.
func runAdmin(ctx context.Context, o options) (err error) {
	e, err := openAdmin(ctx, o)
	defer func() {
		if closed := e.close(); err == nil {
			err = closed
		}
	}()
	if err != nil {
		return err
	}
	sizes := []int{o.entries / 100, o.entries}
	var results [][]sample
	var urls []string
	for _, size := range sizes {
		database, err := e.createFilled(ctx, size)
		if err != nil {
			return err
		}
		urls = append(urls, database)
		g, stop, err := e.serveStoppable(ctx, database, adminSettings(false))
		if err != nil {
			return err
		}
		timed, err := e.measureQueries(ctx, g, size)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		results = append(results, timed)
	}
	fmt.Println(e.machine(ctx))
	reportQueries(os.Stdout, sizes, results, o.requests)
	return e.compareWithBackgroundWork(ctx, urls[len(urls)-1], o)
}

// adminQuery is one kind of read; path returns a random one of its kind for a ledger of n entries.
type adminQuery struct {
	name string
	path func(n int) string
}

func queries() []adminQuery {
	const list = "/v1/admin/entries?"
	by := func(name, query string, draw func(n int) string) adminQuery {
		return adminQuery{name, func(n int) string {
			if draw == nil {
				return list + query
			}
			return list + query + url.QueryEscape(draw(n))
		}}
	}
	return []adminQuery{
		by("reminder", "reminder_id=", func(n int) string { return oldID(rand.IntN(n) + 1) }),
		by("reservation", "reservation_id=", func(n int) string { return fmt.Sprintf("seat-%d", (rand.IntN(n)+1)/2) }),
		by("user", "user_id=", func(n int) string { return fmt.Sprintf("user-%d", rand.IntN(max(n/10, 1))) }),
		by("state sent", "state=sent", nil),
		by("state unknown", "state=unknown", nil),
		by("state dead", "state=dead", nil),
		by("class", "class=recipient", nil),
		by("type", "type=seat_moved", nil),
		by("channel", "channel=sms", nil),
		by("provider", "provider=relay", nil),
		by("code", "code=code-7", nil),
		by("conflict", "conflict=true", nil),
		by("an hour", "from=", func(int) string {
			return time.Now().Add(-time.Duration(rand.IntN(4000)+100) * time.Hour).UTC().Format(time.RFC3339)
		}),
		by("class and provider", "class=exhausted&provider=relay", nil),
		by("unfiltered", "limit=200", nil),
		{"entry detail", func(n int) string {
			return "/v1/admin/entries/" + filledIdentity(rand.IntN(n)+1).EntryID()
		}},
		{"dead letters", func(int) string { return "/v1/admin/dead-letters" }},
		{"dead letter groups", func(int) string { return "/v1/admin/dead-letters/groups" }},
		{"unresolved entries", func(int) string { return "/v1/admin/reconciliation" }},
	}
}

func (e *environment) measureQueries(ctx context.Context, g *gateway, size int) ([]sample, error) {
	var all []sample
	for _, one := range queries() {
		var took []time.Duration
		for range e.requests + e.requests/10 {
			path := one.path(size)
			begun := time.Now()
			if _, err := request(ctx, g, http.MethodGet, path, supportToken, ""); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			took = append(took, time.Since(begun))
		}
		took = took[e.requests/10:] // the first ones warm up
		slices.Sort(took)
		all = append(all, sample{done: len(took), p50: percentile(took, 50), p99: percentile(took, 99)})
	}
	return all, nil
}

func reportQueries(w io.Writer, sizes []int, results [][]sample, count int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%d requests each, one after another; p50 / p99 in ms\n", count)
	fmt.Fprint(t, "query")
	for _, size := range sizes {
		fmt.Fprintf(t, "\t%d entries", size)
	}
	fmt.Fprintln(t, "\t")
	for i, one := range queries() {
		fmt.Fprint(t, one.name)
		for _, r := range results {
			fmt.Fprintf(t, "\t%s / %s", millis(micros(r[i].p50)), millis(micros(r[i].p99)))
		}
		fmt.Fprintln(t, "\t")
	}
	_ = t.Flush()
}

// warmUp is how long deliveries are not counted after a start.
const warmUp = 6 * time.Second

// compareWithBackgroundWork measures deliveries with a purge and a redrive running and without, alternately.
func (e *environment) compareWithBackgroundWork(ctx context.Context, database string, o options) error {
	var ratios []float64
	var next atomic.Int64
	for round := range o.rounds + 1 {
		var rates [2]float64
		for _, busy := range []bool{round%2 == 0, round%2 == 1} { // alternately, so that neither always has the warmer caches
			g, stop, err := e.serveStoppable(ctx, database, adminSettings(busy))
			if err != nil {
				return err
			}
			// The warm-up also covers what a gateway reads when it starts.
			number := func() int64 { return next.Add(1) }
			s, err := deliver(ctx, g.address, o.connections, warmUp, number)
			if busy && err == nil {
				err = startRedrive(ctx, g)
			}
			if err == nil {
				s, err = deliver(ctx, g.address, o.connections, o.span(), number)
			}
			if err = errors.Join(err, stop()); err != nil {
				return err
			}
			if busy {
				rates[1] = s.rate()
			} else {
				rates[0] = s.rate()
			}
		}
		if round > 0 { // the first round warms up
			ratios = append(ratios, rates[1]/rates[0])
			fmt.Printf("round %d: %.0f deliveries a second without, %.0f beside a purge and a redrive, ratio %.2f\n", round, rates[0], rates[1], rates[1]/rates[0])
		}
	}
	s := spreadOver(ratios)
	fmt.Printf("deliveries beside a purge and a redrive / without: %.2f / %.2f / %.2f (min / median / max)\n", s.min, s.median, s.max)
	return nil
}

func startRedrive(ctx context.Context, g *gateway) error {
	raw, err := request(ctx, g, http.MethodPost, "/v1/admin/redrives", operatorToken,
		`{"filter": {"class": "exhausted"}, "limit": 1000, "rate": 100, "reason": "benchmark"}`)
	var started struct {
		Size int `json:"size"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &started)
	}
	if err == nil && started.Size < 100 {
		err = fmt.Errorf("only %d dead letters are left to redrive", started.Size)
	}
	return err
}

func request(ctx context.Context, g *gateway, method, path, token, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode > 202 {
		err = fmt.Errorf("%s: %d %s", path, resp.StatusCode, raw)
	}
	return raw, err
}
