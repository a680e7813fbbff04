//go:build unix

// Package crashpoint lets a process end or stop itself at named points of a delivery's way, and lets it
// live by a wrong clock: for tests of the real binary, in a build of their own (tag crashpoints).
//
// Invariants: a point that is not armed does nothing; one that is acts once, at the passing it was told, and
// says so before it does; where the process is stopped, whoever passed the point goes on when it is
// continued, not before; a wrong clock is wrong by the calendar and right about how much time passes, as
// that of a badly kept machine.
//
// What it does not do: it knows no room, and no ordinary build knows it. internal/app puts the points where
// they belong, in a file that this build alone has.
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

// Point is a step of a delivery's way.
type Point string

// Points of a delivery that is sent. Besides them, each kind of write has two: before it, and after it is
// committed while its writer has not seen that yet (see [Points.Write]).
const (
	Opened       Point = "opened"        // the envelope is open, and the ledger not yet asked
	Claimed      Point = "claimed"       // the claim stands, and nothing is dialled
	Connected    Point = "connected"     // a connection is had, and nothing written
	Written      Point = "written"       // the whole request is, and nobody has seen an answer
	Answer       Point = "answer"        // the first byte of the provider's answer is there
	Settled      Point = "settled"       // what is to be answered stands in the ledger, and nobody was answered
	HalfAnswered Point = "half_answered" // the broker has the answer's head, and half of its body
	Answered     Point = "answered"      // it has all of it
)

// The kinds of writes.
const (
	claim  = "claim"  // somebody becomes the holder
	settle = "settle" // what the holder's call proved
	late   = "late"   // the same, after the entry had moved on
	lapse  = "lapse"  // a sweep or a delivery met a holder that had gone silent
	lookup = "lookup" // what a provider answered when it was asked later
	rest   = "wait"   // a wait without an attempt
	other  = "other"
)

// All lists every point, in the order of a story.
func All() []Point {
	all := []Point{Opened, Claimed, Connected, Written, Answer, Settled, HalfAnswered, Answered}
	for _, kind := range []string{claim, settle, late, lapse, lookup, rest, other} {
		all = append(all, before(kind), unseen(kind))
	}
	return all
}

func before(kind string) Point { return Point("before_" + kind) }
func unseen(kind string) Point { return Point(kind + "_unseen") }

// Points is what this process does to itself, and where. It is safe for concurrent use.
type Points struct {
	tell   func(at Point, what string)
	mu     sync.Mutex
	orders map[Point][]*order
}

// order is one thing to do at the n-th passing of a point.
type order struct {
	what string
	do   func()
	left int
}

// Arm reads orders, parted by commas: POINT:kill, POINT:stop or POINT:jump=DURATION (of the clock), each with
// :N behind it for the N-th passing instead of the first; "none" for none. tell is told what is done, before
// it is.
func Arm(orders string, clock *Clock, tell func(at Point, what string)) (*Points, error) {
	p := &Points{tell: tell, orders: map[Point][]*order{}}
	if orders == "none" {
		return p, nil
	}
	for word := range strings.SplitSeq(orders, ",") {
		parts := strings.Split(word, ":")
		if len(parts) == 2 {
			parts = append(parts, "1")
		}
		if len(parts) != 3 || !slices.Contains(All(), Point(parts[0])) {
			return nil, fmt.Errorf("crashpoint: %q is no POINT:WHAT[:N] of a point in %q", word, All())
		}
		o := &order{what: parts[1]}
		by, jumps := strings.CutPrefix(o.what, "jump=")
		span, err := time.ParseDuration(by)
		switch {
		case o.what == "kill":
			o.do = kill
		case o.what == "stop":
			o.do = stop
		case jumps && err == nil:
			o.do = func() { clock.Jump(span) }
		default:
			return nil, fmt.Errorf("crashpoint: %q: there is kill, stop and jump=DURATION", word)
		}
		if o.left, err = strconv.Atoi(parts[2]); err != nil || o.left < 1 {
			return nil, fmt.Errorf("crashpoint: %q: the passing is a number from 1", word)
		}
		p.orders[Point(parts[0])] = append(p.orders[Point(parts[0])], o)
	}
	return p, nil
}

// Pass does what is to be done at a point.
func (p *Points) Pass(at Point) {
	for _, o := range p.due(at) {
		p.tell(at, o.what)
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

// armed tells whether anything is or was to be done at a point.
func (p *Points) armed(at Point) bool { return len(p.orders[at]) > 0 }

// Write passes the points around one write of the ledger.
func (p *Points) Write(c ledger.Change, write func() (ledger.Entry, error)) (ledger.Entry, error) {
	kind := kindOf(c)
	p.Pass(before(kind))
	stands, err := write()
	if err == nil {
		p.Pass(unseen(kind))
	}
	return stands, err
}

// kindOf tells by the change alone what its writer is about.
func kindOf(c ledger.Change) string {
	_, newLease := c.Entry.LeaseUntil.Span()
	switch {
	case newLease:
		return claim
	case c.Event == nil:
	case c.Event.Kind == ledger.EventLapse:
		return lapse
	case c.Event.Kind == ledger.EventLate:
		return late
	case c.Event.Kind == "lookup":
		return lookup
	case c.Event.Holder != "":
		return settle
	}
	if c.Entry.State == ledger.Waiting {
		return rest
	}
	return other
}
