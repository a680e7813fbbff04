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

// desk measures what support and operators do over a ledger that has grown: each lookup at a small and at a large
// ledger, and deliveries beside a purge and a redrive, against the same without.
func desk(ctx context.Context, o options) (err error) {
	l, err := openDesk(ctx, o)
	defer func() {
		if closed := l.close(); err == nil {
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
		database, err := l.filled(ctx, size)
		if err != nil {
			return err
		}
		urls = append(urls, database)
		g, stop, err := l.attend(ctx, database, restful(false))
		if err != nil {
			return err
		}
		looked, err := l.lookups(ctx, g, size)
		if err = errors.Join(err, stop()); err != nil {
			return err
		}
		results = append(results, looked)
	}
	fmt.Println(l.machine(ctx))
	reportLookups(os.Stdout, sizes, results, o.looks)
	return l.besides(ctx, urls[len(urls)-1], o)
}

// lookup is one thing that support asks for; path draws one of its kind.
type lookup struct {
	name string
	path func(n int) string
}

func lookups() []lookup {
	const list = "/v1/admin/entries?"
	by := func(name, query string, draw func(n int) string) lookup {
		return lookup{name, func(n int) string {
			if draw == nil {
				return list + query
			}
			return list + query + url.QueryEscape(draw(n))
		}}
	}
	return []lookup{
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
		by("nothing in particular", "limit=200", nil),
		{"one story", func(n int) string {
			return "/v1/admin/entries/" + filledIdentity(rand.IntN(n)+1).EntryID()
		}},
		{"dead letters", func(int) string { return "/v1/admin/dead-letters" }},
		{"a page of groups", func(int) string { return "/v1/admin/dead-letters/groups" }},
		{"what waits for a person", func(int) string { return "/v1/admin/reconciliation" }},
	}
}

func (l *laboratory) lookups(ctx context.Context, g *gateway, size int) ([]sample, error) {
	var all []sample
	for _, one := range lookups() {
		var took []time.Duration
		for range l.looks + l.looks/10 {
			path := one.path(size)
			begun := time.Now()
			if _, err := ask(ctx, g, http.MethodGet, path, supportToken, ""); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
			took = append(took, time.Since(begun))
		}
		took = took[l.looks/10:] // the first warm up
		slices.Sort(took)
		all = append(all, sample{done: len(took), p50: percentile(took, 50), p99: percentile(took, 99)})
	}
	return all, nil
}

func reportLookups(w io.Writer, sizes []int, results [][]sample, looks int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%d requests each, one after another; p50 / p99 in ms\n", looks)
	fmt.Fprint(t, "lookup")
	for _, size := range sizes {
		fmt.Fprintf(t, "\t%d entries", size)
	}
	fmt.Fprintln(t, "\t")
	for i, one := range lookups() {
		fmt.Fprint(t, one.name)
		for _, r := range results {
			fmt.Fprintf(t, "\t%s / %s", millis(micros(r[i].p50)), millis(micros(r[i].p99)))
		}
		fmt.Fprintln(t, "\t")
	}
	_ = t.Flush()
}

// warmUp is for how long deliveries are not counted after a start.
const warmUp = 6 * time.Second

// besides measures deliveries with a purge and a redrive under way and without, in turn.
func (l *laboratory) besides(ctx context.Context, database string, o options) error {
	var ratios []float64
	var next atomic.Int64
	for round := range o.rounds + 1 {
		var rates [2]float64
		for _, busy := range []bool{round%2 == 0, round%2 == 1} { // in turn, so that neither has the warmer caches
			g, stop, err := l.attend(ctx, database, restful(busy))
			if err != nil {
				return err
			}
			// What a gateway looks through when it starts is over first.
			number := func() int64 { return next.Add(1) }
			s, err := deliver(ctx, g.address, o.connections, warmUp, number)
			if busy && err == nil {
				err = redriveAtOnce(ctx, g)
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
		if round > 0 { // the first warms up
			ratios = append(ratios, rates[1]/rates[0])
			fmt.Printf("round %d: %.0f deliveries a second without, %.0f beside a purge and a redrive, ratio %.2f\n", round, rates[0], rates[1], rates[1]/rates[0])
		}
	}
	s := spreadOver(ratios)
	fmt.Printf("deliveries beside a purge and a redrive / without: %.2f / %.2f / %.2f (min / median / max)\n", s.min, s.median, s.max)
	return nil
}

func redriveAtOnce(ctx context.Context, g *gateway) error {
	raw, err := ask(ctx, g, http.MethodPost, "/v1/admin/redrives", operatorToken,
		`{"filter": {"class": "exhausted"}, "limit": 1000, "rate": 100, "reason": "measured"}`)
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

func ask(ctx context.Context, g *gateway, method, path, token, body string) ([]byte, error) {
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
