package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints the results, to be pasted into a document. Every figure is the median of its rounds, or the
// minimum, the median and the maximum.
func report(w io.Writer, machine string, o options, cells []cell, results [][]sample) {
	fmt.Fprintf(w, "%s\n", machine)
	fmt.Fprintf(w, "%d rounds, %d s a cell, in turn, after a round that warms up; closed loop; load, gateway and database share the cores; min / median / max\n\n", o.rounds, o.seconds)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cell\ta second\tp50 ms\tp99 ms\tCPU us each: gateway, postgres, load\tothers' cores\t")
	for i, c := range cells {
		of := func(value func(sample) float64) spread { return spreadOf(results[i], value) }
		each := func(took func(usage) time.Duration) float64 {
			return of(func(s sample) float64 { return micros(took(s.usage)) / float64(s.done) }).median
		}
		fmt.Fprintf(t, "%s\t%.0f / %.0f / %.0f\t%s\t%s\t%.0f, %.0f, %.0f\t%.2f\t\n", c.name,
			of(sample.rate).min, of(sample.rate).median, of(sample.rate).max,
			millis(of(func(s sample) float64 { return micros(s.p50) }).median),
			millis(of(func(s sample) float64 { return micros(s.p99) }).median),
			each(func(u usage) time.Duration { return u.gateways }), each(func(u usage) time.Duration { return u.postgres }), each(func(u usage) time.Duration { return u.load }),
			of(func(s sample) float64 { return s.usage.others().Seconds() / s.wall.Seconds() }).median)
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	fmt.Fprintln(t, "gateway\tbaseline\tgateway / baseline, round by round\t")
	for i, c := range cells {
		for _, baseline := range c.baselines {
			f := slices.IndexFunc(cells, func(other cell) bool { return other.name == baseline })
			r := ratios(results[i], results[f])
			fmt.Fprintf(t, "%s\t%s\t%.2f / %.2f / %.2f\t\n", c.name, baseline, r.min, r.median, r.max)
		}
	}
	_ = t.Flush()
	fmt.Fprintln(w)
	for _, c := range cells {
		fmt.Fprintf(t, "%s\t%s\n", c.name, c.description)
	}
	_ = t.Flush()
}

// spread is the minimum, median and maximum over the rounds.
type spread struct{ min, median, max float64 }

func spreadOf(samples []sample, value func(sample) float64) spread {
	var values []float64
	for _, s := range samples {
		values = append(values, value(s))
	}
	return spreadOver(values)
}

// ratios compares rates within each round.
func ratios(over, under []sample) spread {
	var values []float64
	for i := range over {
		values = append(values, over[i].rate()/under[i].rate())
	}
	return spreadOver(values)
}

func spreadOver(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{values[0], (values[(n-1)/2] + values[n/2]) / 2, values[n-1]}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(micros float64) string {
	if micros == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", micros/1000)
}
