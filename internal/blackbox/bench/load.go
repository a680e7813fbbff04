package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// answerTimeout is how long senders wait for outstanding responses once a cell is over.
const answerTimeout = 20 * time.Second

// sample is the result of one cell in one round.
type sample struct {
	done     int
	elapsed  time.Duration
	p50, p99 time.Duration // 0 where single operations were not timed
	usage    usage
	wall     time.Duration // the time over which the usage was taken
}

// rate returns operations per second.
func (s sample) rate() float64 { return float64(s.done) / s.elapsed.Seconds() }

// deliver pushes reminders over a number of connections for a span of time, each sender waiting for its
// response.
func deliver(ctx context.Context, address string, connections int, span time.Duration, next func() int64) (sample, error) {
	senders := make([]sender, connections)
	for i := range senders {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return sample{}, err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(span + answerTimeout)); err != nil {
			return sample{}, err
		}
		senders[i] = sender{conn: conn, answers: bufio.NewReader(conn)}
	}
	return repeat(ctx, connections, span, func(i int) error { return senders[i].push(next()) })
}

// repeat calls a function on n goroutines for a span of time, and times each call.
func repeat(ctx context.Context, n int, span time.Duration, call func(i int) error) (sample, error) {
	var (
		took = make([][]time.Duration, n)
		errs = make([]error, n)
		wg   sync.WaitGroup
	)
	begun := time.Now()
	for i := range n {
		wg.Go(func() {
			for last := begun; last.Sub(begun) < span && ctx.Err() == nil; {
				if errs[i] = call(i); errs[i] != nil {
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(begun)
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return sample{}, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return sample{done: len(all), elapsed: elapsed, p50: percentile(all, 50), p99: percentile(all, 99)}, nil
}

// percentile returns the smallest value that p percent of the values do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// sender speaks just enough HTTP/1.1 to keep a connection busy, so that the processor's time is left to the
// gateway.
type sender struct {
	conn    net.Conn
	answers *bufio.Reader
	out     []byte
	body    []byte
}

// push delivers one reminder and expects its ack.
func (s *sender) push(n int64) error {
	s.body = fmt.Appendf(s.body[:0], `{"reminder_id": "rem-%012d", "type": "seat_expiring", "channel": "email", "to": "p%d@example.test", `+
		`"content": {"subject": "Your seat is about to expire", "text": "It is held until 09:10."}}`, n, n)
	s.out = fmt.Appendf(s.out[:0], "POST /v1/push/queue HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", sourceToken, len(s.body), s.body)
	if _, err := s.conn.Write(s.out); err != nil {
		return err
	}
	status, body, err := readAnswer(s.answers, s.body[:0])
	if s.body = body; err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("rem-%012d was not acked: %d %s", n, status, body)
	}
	return nil
}

// readAnswer reads a response with a Content-Length; its body is stored in buffer.
func readAnswer(r *bufio.Reader, buffer []byte) (status int, body []byte, err error) {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, buffer, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if first {
			_, code, _ := bytes.Cut(line, []byte(" "))
			if status, err = strconv.Atoi(string(code[:min(3, len(code))])); err != nil {
				return 0, buffer, fmt.Errorf("no HTTP: %q", line)
			}
		} else if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, buffer, err
			}
		}
	}
	if length < 0 || length > 1<<20 {
		return 0, buffer, errors.New("an answer without a length")
	}
	body = slices.Grow(buffer, length)[:length]
	_, err = io.ReadFull(r, body)
	return status, body, err
}
