//go:build unix

// Package crashpoint lets a process kill or stop itself at named points of a delivery, and lets it run with a wrong
// clock: for tests of the real binary, in a separate build (tag crashpoints).
//
// Invariants: a point that is not armed does nothing; an armed point acts once, at the configured pass, and reports it
// before it acts; a goroutine that stops the process at a point continues when the process is continued, not before;
// a wrong clock has the wrong wall time but the right monotonic time, like the clock of a badly configured machine.
//
// What it does not do: it knows no other component, and no ordinary build contains it. internal/app inserts the points
// in a file that only this build has.
package crashpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Point is a step of a delivery.
type Point string

// The points of a delivery that is sent. In addition, each kind of write has two: before it, and after it is committed
// but before its writer sees the result (see [Points.Write]).
const (
	Opened       Point = "opened"        // the envelope is parsed, the ledger not yet read
	Claimed      Point = "claimed"       // the claim is stored, no connection is dialled
	Connected    Point = "connected"     // a connection is established, nothing is written
	Written      Point = "written"       // the whole request is written, no response was read
	Answer       Point = "answer"        // the first byte of the provider's response is read
	Settled      Point = "settled"       // the result is stored in the ledger, no response was sent
	HalfAnswered Point = "half_answered" // the headers and half of the body of the response are sent
	Answered     Point = "answered"      // the whole response is sent
)

// The kinds of writes of the ledger.
const (
	claim  = "claim"  // a claim
	settle = "settle" // the result of the holder's call
	late   = "late"   // a result that arrived after the entry had changed
	expire = "expire" // a sweep or a delivery found an expired lease
	lookup = "lookup" // the result of a lookup
	wait   = "wait"   // the entry waits, without an attempt
	other  = "other"
)

// All returns every point, in the order of a delivery.
func All() []Point {
	all := []Point{Opened, Claimed, Connected, Written, Answer, Settled, HalfAnswered, Answered}
	for _, kind := range []string{claim, settle, late, expire, lookup, wait, other} {
		all = append(all, before(kind), unseen(kind))
	}
	return all
}

func before(kind string) Point { return Point("before_" + kind) }
func unseen(kind string) Point { return Point(kind + "_unseen") }

// Points holds the actions that are armed at points. It is safe for concurrent use.
type Points struct {
	report func(at Point, action string)
	mu     sync.Mutex
	orders map[Point][]*order
}

// order is one action at the n-th pass of a point.
type order struct {
	action string
	do     func()
	left   int // passes until then
}

// Arm parses a comma-separated list of orders: POINT:kill, POINT:stop or POINT:jump=DURATION (of the clock), each
// optionally with :N for the N-th pass instead of the first. The value "none" is an empty list. report is called with
// each action before it is taken.
func Arm(orders string, clock *Clock, report func(at Point, action string)) (*Points, error) {
	p := &Points{report: report, orders: map[Point][]*order{}}
	if orders == "none" {
		return p, nil
	}
	for word := range strings.SplitSeq(orders, ",") {
		parts := strings.Split(word, ":")
		if len(parts) == 2 {
			parts = append(parts, "1")
		}
		if len(parts) != 3 || !slices.Contains(All(), Point(parts[0])) {
			return nil, fmt.Errorf("crashpoint: %q is not POINT:ACTION[:N] with a point of %q", word, All())
		}
		o := &order{action: parts[1]}
		by, jumps := strings.CutPrefix(o.action, "jump=")
		span, err := time.ParseDuration(by)
		switch {
		case o.action == "kill":
			o.do = kill
		case o.action == "stop":
			o.do = stop
		case jumps && err == nil:
			o.do = func() { clock.Jump(span) }
		default:
			return nil, fmt.Errorf("crashpoint: %q: the action must be kill, stop or jump=DURATION", word)
		}
		if o.left, err = strconv.Atoi(parts[2]); err != nil || o.left < 1 {
			return nil, fmt.Errorf("crashpoint: %q: the pass must be a number from 1", word)
		}
		p.orders[Point(parts[0])] = append(p.orders[Point(parts[0])], o)
	}
	return p, nil
}

// Pass takes the actions that are due at a point.
func (p *Points) Pass(at Point) {
	for _, o := range p.due(at) {
		p.report(at, o.action)
		o.do()
	}
}

func (p *Points) due(at Point) (due []*order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.orders[at] {
		if o.left--; o.left == 0 {
			due = append(due, o)
		}
	}
	return due
}

// armed reports whether any action was ever armed at a point.
func (p *Points) armed(at Point) bool { return len(p.orders[at]) > 0 }

// Write passes the points before and after one write of the ledger.
func (p *Points) Write(c ledger.Change, write func() (ledger.Entry, error)) (ledger.Entry, error) {
	kind := kindOf(c)
	p.Pass(before(kind))
	stored, err := write()
	if err == nil {
		p.Pass(unseen(kind))
	}
	return stored, err
}

// kindOf derives the kind of a write from its change alone.
func kindOf(c ledger.Change) string {
	_, newLease := c.Entry.LeaseUntil.Span()
	switch {
	case newLease:
		return claim
	case c.Event == nil:
	case c.Event.Kind == ledger.EventLeaseExpired:
		return expire
	case c.Event.Kind == ledger.EventLate:
		return late
	case c.Event.Kind == ledger.EventLookup:
		return lookup
	case c.Event.Holder != "":
		return settle
	}
	if c.Entry.State == ledger.Waiting {
		return wait
	}
	return other
}
