package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
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
	return time.Duration(d.roll(int(limit.Milliseconds()))) * time.Millisecond
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
	luck     *dice // the scenario's
	moods    map[mood]int
	perMille struct{ crashes, away, lost int } // at every statement

	memory  *dbtest.Memory
	over    chan struct{} // closed when the dead may end
	trouble atomic.Bool
	skew    atomic.Int64 // of the ledger's clock, against the world's

	writing sync.Mutex // makes a write and what is seen of it one
	mu      sync.Mutex // guards what follows
	seen
	leaps    []leap // of the ledger's clock, ahead
	replicas []*replica
	broken   []string
	stories  []string
	tally    tally

	accounts   map[string]*account
	everybody  []*replica
	background sync.WaitGroup
}

// seen is what was seen of each reminder.
type seen struct {
	luckOf  map[ledger.Identity]*dice
	calls   map[ledger.Identity]int
	sends   map[ledger.Identity][]string
	heard   map[heard]int
	callers map[string]int                // calls by holder
	barred  map[ledger.Identity]string    // the holder that a cancel met; no other may call
	dropped map[ledger.Identity]time.Time // since when a cancel says that it dropped it
	acked   map[ledger.Identity]bool
}

// heard is who learnt what became of whose call.
type heard struct {
	ledger.Identity
	by *replica
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, moods: map[mood]int{}, accounts: map[string]*account{}, tally: tally{fired: map[fault]int{}},
		seen: seen{
			luckOf: map[ledger.Identity]*dice{}, calls: map[ledger.Identity]int{}, sends: map[ledger.Identity][]string{},
			heard: map[heard]int{}, callers: map[string]int{}, barred: map[ledger.Identity]string{},
			dropped: map[ledger.Identity]time.Time{}, acked: map[ledger.Identity]bool{},
		},
	}
	w.luck = w.dice(theScenario)
	w.memory = dbtest.NewMemory(w.now)
	w.perMille.crashes, w.perMille.away, w.perMille.lost = w.luck.roll(8), w.luck.roll(60), w.luck.roll(80)
	for m := range moods {
		w.moods[m] = w.luck.roll(4)
	}
	w.moods[accepts] += 6
	for i, id := range ids() {
		w.luckOf[id] = w.dice(anIdentity + i)
	}
	w.trouble.Store(true)
	return w
}

func ids() (all []ledger.Identity) {
	for i := range 12 {
		all = append(all, ledger.Identity{
			ReminderID: fmt.Sprintf("r-%d", i), Type: []string{"plain", "asked"}[i%2], Channel: []string{"email", "sms"}[i/2%2],
		})
	}
	return all
}

// now is the ledger's.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }

func (w *world) fire(kind fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.fired[kind]++
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
	for i, id := range ids() {
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
			w: w, accepted: map[string]acceptance{},
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

// run is ten minutes of trouble, and then rest.
func (w *world) run() {
	begun := time.Now()
	w.over = make(chan struct{})
	shared := w.plan()
	life := func() *replica {
		if w.luck.roll(3) == 0 {
			shared = w.plan()
			w.fire(configured)
		}
		return w.start(shared)
	}
	w.replicas = []*replica{life(), life()}
	w.cast(begun)
	for range 60 {
		time.Sleep(10 * time.Second)
		if w.luck.roll(10) == 0 {
			w.leap(time.Duration(w.luck.roll(2000)-500) * time.Millisecond)
		}
		if w.luck.roll(40) == 0 {
			closeGate(w.memory, []string{"a", "b"}[w.luck.roll(2)], ops, 10*time.Second+w.luck.upTo(3*time.Minute), 0)
			w.fire(shut)
		}
		for i, r := range w.replicas {
			if !r.crashed.Load() && w.luck.roll(60) > 0 {
				continue
			}
			if w.luck.roll(2) == 0 {
				r.crash()
			} else if !r.crashed.Load() {
				r.stop() // what is in flight goes on
				w.fire(drained)
			}
			w.replace(i, life())
		}
	}
	w.trouble.Store(false)
	for i, r := range w.replicas {
		r.stop()
		w.replace(i, w.start(shared))
	}
	for calm := time.Now(); time.Since(calm) < deadline+takeover+2*lease+2*time.Minute; time.Sleep(10 * time.Second) {
		if time.Since(calm) > 2*lease+10*time.Second {
			w.overdue()
		}
	}
	w.rest()
	w.end()
	w.tally.time = time.Since(begun)
}

// leap is a failover to a machine with another clock.
func (w *world) leap(by time.Duration) {
	switch {
	case by > 0:
		w.mu.Lock()
		w.leaps = append(w.leaps, leap{time.Now(), by})
		w.mu.Unlock()
		w.fire(leaptAhead)
	case by < 0:
		w.fire(leaptBack)
	}
	w.skew.Add(int64(by))
}

func (w *world) replace(i int, next *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas[i] = next
}

// end stops everybody; then the dead may end too.
func (w *world) end() {
	for _, r := range w.everybody {
		r.stop()
	}
	for _, r := range w.replicas {
		r.worker.Wait()
		if err := r.desk.Wait(context.Background()); err != nil {
			w.breaks("%s does not end: %v", r.name, err)
		}
	}
	time.Sleep(3 * time.Minute)
	for _, r := range w.everybody {
		for _, s := range r.fleet.Status() {
			if s.InFlight != 0 && !r.crashed.Load() {
				w.breaks("%s keeps %d slots of %s", r.name, s.InFlight, s.Name)
			}
		}
	}
	close(w.over)
	for _, r := range w.everybody {
		r.worker.Wait()
		_ = r.desk.Wait(context.Background())
	}
	w.background.Wait()
}
