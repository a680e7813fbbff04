package worlds_test

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// key tells states apart: 128 bits of a keyed hash over what is encoded.
type key struct{ a, b uint64 }

// graph is what was found of a world: states by number, in the order of their distance from the beginning.
type graph struct {
	world  *world
	seen   map[key]uint32
	parent []uint32
	choice []uint16 // which of its parent's steps leads to it
	from   []uint32 // where each state's successors begin among to
	to     []uint32 // all but those of a visitor that is too late
	steps  int
	rests  int
	fault  string // the first that was met, with the way to it
}

// most states of a world that ends.
const most = 4_000_000

// explore visits every state of a world, those with the shortest way first, until none is left or a
// promise is broken.
func explore(w *world) *graph {
	g := &graph{world: w, seen: map[key]uint32{}}
	one, other := maphash.MakeSeed(), maphash.MakeSeed()
	c := coder{plan: w.plan}
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
	first := w.begins()
	number(first, 0, 0)
	for frontier := []*state{first}; len(frontier) > 0; {
		var next []*state
		for _, s := range frontier {
			me := uint32(len(g.from))
			g.from = append(g.from, uint32(len(g.to)))
			choice, must := 0, false
			wrong, last := "", -1
			w.steps(s, func(st step) {
				if st.next.fault != "" && wrong == "" {
					wrong, last = st.next.fault, choice
				}
				n, fresh := number(st.next, me, choice)
				if fresh {
					kept := *st.next
					next = append(next, &kept)
				}
				if st.what != tooLate {
					g.to = append(g.to, n)
				}
				g.steps++
				choice++
				must = must || st.must
			})
			if !must {
				g.rests++
				wrong = cmp.Or(wrong, s.rests())
			}
			if len(g.parent) > most {
				wrong = cmp.Or(wrong, "and so on: there are too many states for a world that ends")
			}
			if wrong != "" {
				g.fault = g.story(me, last) + "\n   => " + wrong
				return g
			}
		}
		frontier = next
	}
	return g
}

// endless tells how many states stand on a way that never ends, or behind one: those that are left when every
// state that nothing leads to any more has been taken away. A visitor that is too late for its own call time
// and again costs nothing but time, and is left out.
func (g *graph) endless() int {
	n := len(g.parent)
	leads := make([]uint32, n)
	for _, to := range g.to {
		leads[to]++
	}
	var bare []uint32
	for i, in := range leads {
		if in == 0 {
			bare = append(bare, uint32(i))
		}
	}
	left := n
	for len(bare) > 0 {
		i := bare[len(bare)-1]
		bare = bare[:len(bare)-1]
		left--
		for _, to := range g.successors(i) {
			if leads[to]--; leads[to] == 0 {
				bare = append(bare, to)
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

// story walks the way to a state again, and one step further.
func (g *graph) story(n uint32, last int) string {
	var way []int
	if last >= 0 {
		way = append(way, last)
	}
	for ; n != 0; n = g.parent[n] {
		way = append(way, int(g.choice[n]))
	}
	slices.Reverse(way)
	var b strings.Builder
	s := g.world.begins()
	for _, choice := range way {
		i := 0
		var took step
		var kept state
		g.world.steps(s, func(st step) {
			if i == choice {
				took, kept = st, *st.next
			}
			i++
		})
		s = &kept
		fmt.Fprintf(&b, "\n%5s  %-8s %-50s %s", s.now, names[took.who], took.what+took.how, s.standing())
	}
	return b.String()
}

var names = [cast + 4]string{"delivery", "twin", "worker", "sweep", "cancel", "person", "asker", "report", "", "redrive", "other", "forgets"}

func (s *state) standing() string {
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
