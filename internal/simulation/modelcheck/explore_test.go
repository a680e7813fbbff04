package modelcheck_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// key identifies a state: 128 bits of a keyed hash over its encoding.
type key struct{ a, b uint64 }

// graph is the explored states of a model, numbered in the order of their distance from the initial state.
type graph struct {
	model     *model
	seen      map[key]uint32
	parent    []uint32
	choice    []uint16 // which of its parent's steps leads to the state
	from      []uint32 // where the state's successors begin in to
	to        []uint32 // all successors, except those by a task that is too late for its call
	steps     int
	resting   int
	violation string // the first one found, with the steps that lead to it
}

// maxStates bounds the states of one model; one that exceeds it is taken for endless.
const maxStates = 4_000_000

// explore visits every state of a model, those with the shortest path first, until none is left or an invariant is
// violated.
func explore(m *model) *graph {
	g := &graph{model: m, seen: map[key]uint32{}}
	one, other := maphash.MakeSeed(), maphash.MakeSeed()
	c := encoder{scenario: m.scenario}
	number := func(s *state, parent uint32, choice int) (uint32, bool) {
		code := c.encode(s)
		k := key{maphash.Bytes(one, code), maphash.Bytes(other, code)}
		if n, known := g.seen[k]; known {
			return n, false
		}
		n := uint32(len(g.parent))
		g.seen[k] = n
		g.parent, g.choice = append(g.parent, parent), append(g.choice, uint16(choice))
		return n, true
	}
	first := m.initial()
	number(first, 0, 0)
	for frontier := []*state{first}; len(frontier) > 0; {
		var next []*state
		for _, s := range frontier {
			me := uint32(len(g.from))
			g.from = append(g.from, uint32(len(g.to)))
			choice, must := 0, false
			wrong, last := "", -1
			m.steps(s, func(st step) {
				if st.next.violation != "" && wrong == "" {
					wrong, last = st.next.violation, choice
				}
				n, fresh := number(st.next, me, choice)
				if fresh {
					kept := *st.next
					next = append(next, &kept)
				}
				if st.action != tooLate {
					g.to = append(g.to, n)
				}
				g.steps++
				choice++
				must = must || st.must
			})
			if !must {
				g.resting++
				wrong = cmp.Or(wrong, s.checkRest())
			}
			if len(g.parent) > maxStates {
				wrong = cmp.Or(wrong, "too many states; the model may be endless")
			}
			if wrong != "" {
				g.violation = g.trace(me, last) + "\n   => " + wrong
				return g
			}
		}
		frontier = next
	}
	return g
}

// countEndless returns how many states are on a cycle, or reachable from one: those that remain after repeatedly
// removing every state without a predecessor. Steps of a task that is too late for its own call are left out: it
// may repeat them, but they cost nothing but time.
func (g *graph) countEndless() int {
	n := len(g.parent)
	predecessors := make([]uint32, n)
	for _, to := range g.to {
		predecessors[to]++
	}
	var roots []uint32
	for i, in := range predecessors {
		if in == 0 {
			roots = append(roots, uint32(i))
		}
	}
	left := n
	for len(roots) > 0 {
		i := roots[len(roots)-1]
		roots = roots[:len(roots)-1]
		left--
		for _, to := range g.successors(i) {
			if predecessors[to]--; predecessors[to] == 0 {
				roots = append(roots, to)
			}
		}
	}
	return left
}

func (g *graph) successors(i uint32) []uint32 {
	end := uint32(len(g.to))
	if int(i)+1 < len(g.from) {
		end = g.from[i+1]
	}
	return g.to[g.from[i]:end]
}

// trace replays the path to a state, and one step more.
func (g *graph) trace(n uint32, last int) string {
	var path []int
	if last >= 0 {
		path = append(path, last)
	}
	for ; n != 0; n = g.parent[n] {
		path = append(path, int(g.choice[n]))
	}
	slices.Reverse(path)
	var b strings.Builder
	s := g.model.initial()
	for _, choice := range path {
		i := 0
		var taken step
		var kept state
		g.model.steps(s, func(st step) {
			if i == choice {
				taken, kept = st, *st.next
			}
			i++
		})
		s = &kept
		fmt.Fprintf(&b, "\n%5s  %-10s %-50s %s", s.now, actorNames[taken.actor], taken.action+taken.ending, s.summary())
	}
	return b.String()
}

var actorNames = [actorCount + 4]string{"delivery", "delivery 2", "worker", "sweep", "cancel", "operator", "lookup", "status", "", "redrive", "redrive 2", "retention"}

func (s *state) summary() string {
	e := s.entry
	if e == nil {
		return "no entry"
	}
	doubt := ""
	if e.InDoubt() {
		doubt = ", in doubt since " + e.DoubtSince.Sub(noon()).String()
	}
	return fmt.Sprintf("v%d %s %s by %s, holder %q%s; sent %d", e.Version, e.State, e.Reason, e.Owner, e.Holder, doubt, s.sends)
}
