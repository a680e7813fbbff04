package simulation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// farLeap is how far the ledger's clock may leap ahead at once.
const farLeap = 1500 * time.Millisecond

type leap struct {
	at time.Time
	by time.Duration
}

// Actors that throw dice; those of one kind are numbered upwards from here.
const (
	theScenario = 0
	aReplica    = 1_000
	aSender     = 10_000
	anIdentity  = 20_000
	anAccount   = 30_000
	aPerson     = 40_000
	anOperator  = 50_000
	aScribbler  = 60_000
	aStraggler  = 70_000
	aKeeper     = 80_000
	aReporter   = 1_000_000
)

// dice are one actor's luck.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (w *world) dice(actor int) *dice {
	return &dice{rng: rand.New(rand.NewPCG(w.seed, uint64(actor)))}
}

// roll is a number below n.
func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64()
}

// upTo is a span below limit, in whole milliseconds.
func (d *dice) upTo(limit time.Duration) time.Duration {
	return time.Duration(d.roll(int(limit)))
}

// plan is a configuration.
type plan struct {
	accounts  []*account
	channels  map[string]string
	onUnknown ledger.OnUnknown
}

// world is one run: the scenario, and all that the witnesses saw.
type world struct {
	seed     uint64
	ids      []ledger.Identity
	luck     *dice // the scenario's
	moods    map[mood]int
	perMille struct{ crashes, away, lost int } // at every statement about an entry

	ledger    atomic.Pointer[primary]
	forgetful bool // its failovers may forget commits
	people    int  // who decide what is unknown
	operators int  // who look after dead letters
	keep      ledger.Retention
	final     plan          // the configuration of the end
	over      chan struct{} // closed when the dead may end
	trouble   atomic.Bool
	skew      atomic.Int64 // of the ledger's clock, against the world's

	writing sync.Mutex // makes a write and what is seen of it one
	mu      sync.Mutex // guards what follows
	seen
	book
	leaps    []leap    // of the ledger's clock, ahead
	fellBack time.Time // when the ledger last forgot commits
	replicas []*replica
	broken   []string
	stories  []string
	lines    []line
	tally    tally

	accounts   map[string]*account
	everybody  []*replica
	background sync.WaitGroup
}

// seen is what was seen of each reminder.
type seen struct {
	luckOf  map[ledger.Identity]*dice
	calls   map[ledger.Identity]int
	sends   map[ledger.Identity][]send
	heard   map[heard]int
	callers map[string]int                // calls by holder
	barred  map[ledger.Identity]string    // the holder that a cancel met; no other may call
	dropped map[ledger.Identity]time.Time // since when a cancel says that it dropped it
	acked   map[ledger.Identity]bool
	proven  map[ledger.Identity]bool // its provider has told us, and was told that we know

	overtaken map[ledger.Identity]int       // holders whose reminder was proven sent in their hands: if they die, no line tells
	decisions map[string]decision           // of people, by the name under which they made them
	forgotten map[ledger.Identity]bool      // some commits were, by a failover
	erased    map[ledger.Identity]string    // the holder that an erasure met; no other may call
	buried    map[ledger.Identity]time.Time // the last write of an entry that was deleted, by the ledger's clock
	carried   map[ledger.Identity]int       // lines of calls that went with it
	past      map[ledger.Identity]int       // sends that were told of there
	risked    map[ledger.Identity]int       // risks that those told of
}

// send is what a provider carried on.
type send struct {
	at      time.Time
	account string
}

func (s send) String() string { return clock(s.at) + " " + s.account }

// heard is who learnt what became of whose call.
type heard struct {
	ledger.Identity
	by *replica
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, moods: map[mood]int{}, accounts: map[string]*account{}, tally: newTally(), ids: identities(),
		seen: seen{
			luckOf: map[ledger.Identity]*dice{}, calls: map[ledger.Identity]int{}, sends: map[ledger.Identity][]send{},
			heard: map[heard]int{}, callers: map[string]int{}, barred: map[ledger.Identity]string{},
			dropped: map[ledger.Identity]time.Time{}, acked: map[ledger.Identity]bool{},
			proven: map[ledger.Identity]bool{}, decisions: map[string]decision{},
			erased: map[ledger.Identity]string{}, buried: map[ledger.Identity]time.Time{}, carried: map[ledger.Identity]int{}, past: map[ledger.Identity]int{},
			forgotten: map[ledger.Identity]bool{}, risked: map[ledger.Identity]int{}, overtaken: map[ledger.Identity]int{},
		},
		book: newBook(),
	}
	w.luck = w.dice(theScenario)
	w.perMille.crashes, w.perMille.away, w.perMille.lost = w.luck.roll(16), w.luck.roll(60), w.luck.roll(80)
	for m := range moods {
		w.moods[m] = w.luck.roll(4)
	}
	w.moods[accepts] += 6
	w.people, w.forgetful = w.luck.roll(3), w.luck.roll(3) == 0
	w.keeps()
	for i, id := range w.ids {
		w.luckOf[id] = w.dice(anIdentity + i)
	}
	w.trouble.Store(true)
	return w
}

// identities are whom a run is about.
func identities() (all []ledger.Identity) {
	for i := range 12 {
		all = append(all, ledger.Identity{
			ReminderID: fmt.Sprintf("r-%d", i), Type: []string{"plain", "asked"}[i%2], Channel: []string{"email", "sms"}[i/2%2],
		})
	}
	return all
}

// now is the ledger's.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

// fire counts a fault, and writes it into the history.
func (w *world) fire(kind fault, about string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.fired[kind]++
	if kind != slow {
		w.lines = append(w.lines, line{time.Now(), kind, about})
	}
}

func (w *world) count(kind figure, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.counted[kind] += n
}

// line is one of the history.
type line struct {
	at    time.Time
	kind  fault
	about string
}

// history is all that befell a run, and how its reminders fared.
func (w *world) history() string {
	var b strings.Builder
	for _, l := range w.lines {
		fmt.Fprintf(&b, "%s %s: %s\n", clock(l.at), l.kind, l.about)
	}
	return b.String() + strings.Join(w.stories, "\n")
}

// breaks records that an invariant does not hold; what follows on too many others is not told.
func (w *world) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.broken) == 20 {
		return
	}
	w.broken = append(w.broken, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// told is what broke, with the stories of those whom it names.
func (w *world) told() string {
	lines := w.broken
	said := strings.Join(lines, "\n")
	for i, id := range w.ids {
		if i < len(w.stories) && strings.Contains(said, fmt.Sprint(id)) {
			lines = append(lines, w.stories[i])
		}
	}
	return strings.Join(lines, "\n")
}

// account is the one of a name and a generation; the fingerprint covers both and the contract.
func (w *world) account(name string) *account {
	contract := []ledger.Contract{{}, {Kind: ledger.Idempotent, Window: 45 * time.Second}, {Kind: ledger.Idempotent, Window: 5 * time.Minute}, {Kind: ledger.Lookup}}[w.luck.roll(4)]
	fingerprint := fmt.Sprintf("%s/%d/%s/%s", name, w.luck.roll(2), contract.Kind, contract.Window)
	if w.accounts[fingerprint] == nil {
		w.accounts[fingerprint] = &account{
			w: w, accepted: map[string]acceptance{}, luck: w.dice(anAccount + len(w.accounts)),
			lag:   []time.Duration{0, 0, 20 * time.Second, 3 * time.Minute}[w.luck.roll(4)],
			route: ledger.Route{Provider: name, Fingerprint: fingerprint, Contract: contract},
		}
	}
	return w.accounts[fingerprint]
}

func (w *world) plan() plan {
	p := plan{
		channels:  map[string]string{},
		onUnknown: []ledger.OnUnknown{ledger.Hold, ledger.Hold, ledger.AssumeSent, ledger.Resend}[w.luck.roll(4)],
	}
	names := [][]string{{"a", "b"}, {"a", "b"}, {"a"}, {"b"}}[w.luck.roll(4)]
	for _, name := range names {
		p.accounts = append(p.accounts, w.account(name))
	}
	for _, channel := range []string{"email", "sms"} {
		p.channels[channel] = names[w.luck.roll(len(names))]
	}
	return p
}
