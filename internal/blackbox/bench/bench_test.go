package main

import (
	"bufio"
	"strings"
	"testing"
	"time"
)

func TestReadAnswer_ReadsTheWholeAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		wire   string
		status int
		body   string
		refuse bool
	}{
		"acked":            {"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\n{}", 200, "{}", false},
		"nacked":           {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 503, "", false},
		"without a length": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "", true},
		"cut":              {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", 0, "", true},
		"a huge length":    {"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", 0, "", true},
		"no HTTP":          {"* OK IMAP4rev1 ready\r\n\r\n", 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			status, body, err := readAnswer(bufio.NewReader(strings.NewReader(c.wire)), nil)
			if (err != nil) != c.refuse {
				t.Fatalf("error %v, refused: %v", err, c.refuse)
			}
			if !c.refuse && (status != c.status || string(body) != c.body) {
				t.Errorf("%d %q, want %d %q", status, body, c.status, c.body)
			}
		})
	}
}

func TestParsePgbench(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		done int
		rate float64
	}{
		"a result": {"number of transactions actually processed: 500\ninitial connection time = 9 ms\ntps = 250.000000 (without initial connection time)\n", 500, 250},
		"nothing":  {"number of transactions actually processed: 0\nnumber of failed transactions: 0 (NaN%)\n", 0, 0},
	} {
		s := parsePgbench(c.out)
		if s.done != c.done || s.done > 0 && s.rate() != c.rate {
			t.Errorf("%s: %d done at %v, want %d at %v", name, s.done, s.rate(), c.done, c.rate)
		}
	}
}

func TestRatios_AreTakenWithinARound(t *testing.T) {
	at := func(rates ...int) (all []sample) {
		for _, r := range rates {
			all = append(all, sample{done: r, elapsed: time.Second})
		}
		return all
	}
	if got, want := ratios(at(100, 10, 30, 80), at(200, 10, 60, 100)), (spread{0.5, 0.65, 1}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPercentile_IsAnObservedValue(t *testing.T) {
	var ms []time.Duration
	for i := range 200 {
		ms = append(ms, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[int]time.Duration{50: 100 * time.Millisecond, 99: 198 * time.Millisecond, 100: 200 * time.Millisecond} {
		if got := percentile(ms, p); got != want {
			t.Errorf("p%d is %v, want %v", p, got, want)
		}
	}
}
