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

// maxJump is how far the ledger's clock may jump ahead at once.
const maxJump = 1500 * time.Millisecond

type clockJump struct {
	at time.Time
	by time.Duration
}

// Actors with a random source of their own; those of one kind are numbered upwards from here.
const (
	scenarioActor   = 0
	replicaActor    = 1_000
	senderActor     = 10_000
	identityActor   = 20_000
	providerActor   = 30_000
	resolverActor   = 40_000
	operatorActor   = 50_000
	malformedActor  = 60_000
	lateSenderActor = 70_000
	retentionActor  = 80_000
	statusActor     = 1_000_000
)

// randSource is the random source of one actor.
type randSource struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (sim *simulation) rand(actor int) *randSource {
	return &randSource{rng: rand.New(rand.NewPCG(sim.seed, uint64(actor)))}
}

// intN returns a number below n.
func (r *randSource) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

func (r *randSource) float() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.Float64()
}

// upTo returns a duration below limit.
func (r *randSource) upTo(limit time.Duration) time.Duration {
	return time.Duration(r.intN(int(limit)))
}

// config is the configuration of a replica.
type config struct {
	providers []*simProvider
	channels  map[string]string
	onUnknown ledger.OnUnknown
}

// simulation is one run: the scenario, and everything that was observed.
type simulation struct {
	seed     uint64
	ids      []ledger.Identity
	rnd      *randSource // the scenario's
	weights  map[behavior]int
	permille struct{ crashes, away, lost int } // probabilities for every statement about an entry

	ledger       atomic.Pointer[primary]
	losesCommits bool // its failovers may lose commits
	resolvers    int  // operators who decide about unknown entries
	operators    int  // operators who handle dead letters
	retention    ledger.Retention
	lastConfig   config        // the configuration at the end
	done         chan struct{} // closed when the goroutines of crashed replicas may end
	faulty       atomic.Bool
	clockOffset  atomic.Int64 // of the ledger's clock, against the bubble's

	writeMu sync.Mutex // makes a write and its checks atomic
	mu      sync.Mutex // guards the fields below
	observations
	redriveRecords
	jumps         []clockJump // of the ledger's clock, ahead
	commitsLostAt time.Time   // when the ledger last lost commits
	replicas      []*replica
	violations    []string
	details       []string
	log           []logLine
	tally         tally

	providers   map[string]*simProvider
	allReplicas []*replica
	background  sync.WaitGroup
}

// observations is what was observed of each reminder.
type observations struct {
	rndOf            map[ledger.Identity]*randSource
	calls            map[ledger.Identity]int
	sends            map[ledger.Identity][]send
	outcomes         map[outcomeKey]int
	callsByHolder    map[string]int                // calls by holder
	inFlightAtCancel map[ledger.Identity]string    // the holder at the time of a cancel; no other may call
	droppedAt        map[ledger.Identity]time.Time // since when a cancel has reported it as dropped
	acked            map[ledger.Identity]bool
	reportedSent     map[ledger.Identity]bool // its provider has sent proof, and a replica has confirmed that it is recorded

	provenInFlight  map[ledger.Identity]int       // holders whose entry was proven sent meanwhile: if they crash, no event records their call
	decisions       map[string]decision           // of operators, by their name in the audit
	lostCommits     map[ledger.Identity]bool      // some commits were lost in a failover
	holderAtErasure map[ledger.Identity]string    // the holder at the time of an erasure; no other may call
	deletedAt       map[ledger.Identity]time.Time // the last write of a deleted entry, by the ledger's clock
	deletedEvents   map[ledger.Identity]int       // call events in the timelines of deleted entries
	deletedSends    map[ledger.Identity]int       // sends before the deletion
	risksTaken      map[ledger.Identity]int       // risks taken, by the policy or by an operator
}

// send is a message that a provider accepted.
type send struct {
	at          time.Time
	fingerprint string
}

func (s send) String() string { return timeOfDay(s.at) + " " + s.fingerprint }

// outcomeKey identifies the outcomes that one replica received for one reminder.
type outcomeKey struct {
	ledger.Identity
	replica *replica
}

func newSimulation(seed uint64) *simulation {
	sim := &simulation{
		seed: seed, weights: map[behavior]int{}, providers: map[string]*simProvider{}, tally: newTally(), ids: identities(),
		observations: observations{
			rndOf: map[ledger.Identity]*randSource{}, calls: map[ledger.Identity]int{}, sends: map[ledger.Identity][]send{},
			outcomes: map[outcomeKey]int{}, callsByHolder: map[string]int{}, inFlightAtCancel: map[ledger.Identity]string{},
			droppedAt: map[ledger.Identity]time.Time{}, acked: map[ledger.Identity]bool{},
			reportedSent: map[ledger.Identity]bool{}, decisions: map[string]decision{},
			holderAtErasure: map[ledger.Identity]string{}, deletedAt: map[ledger.Identity]time.Time{},
			deletedEvents: map[ledger.Identity]int{}, deletedSends: map[ledger.Identity]int{},
			lostCommits: map[ledger.Identity]bool{}, risksTaken: map[ledger.Identity]int{}, provenInFlight: map[ledger.Identity]int{},
		},
		redriveRecords: newRedriveRecords(),
	}
	sim.rnd = sim.rand(scenarioActor)
	sim.permille.crashes, sim.permille.away, sim.permille.lost = sim.rnd.intN(16), sim.rnd.intN(60), sim.rnd.intN(80)
	for m := range behaviors {
		sim.weights[m] = sim.rnd.intN(4)
	}
	sim.weights[accepts] += 6
	sim.resolvers, sim.losesCommits = sim.rnd.intN(3), sim.rnd.intN(3) == 0
	sim.drawRetention()
	for i, id := range sim.ids {
		sim.rndOf[id] = sim.rand(identityActor + i)
	}
	sim.faulty.Store(true)
	return sim
}

// identities returns the reminders of a run.
func identities() (all []ledger.Identity) {
	for i := range 12 {
		all = append(all, ledger.Identity{
			ReminderID: fmt.Sprintf("r-%d", i), Type: []string{"plain", "asked"}[i%2], Channel: []string{"email", "sms"}[i/2%2],
		})
	}
	return all
}

// now returns the ledger's now.
func (sim *simulation) now() time.Time { return time.Now().Add(time.Duration(sim.clockOffset.Load())) }

// record counts a fault, and adds it to the history.
func (sim *simulation) record(kind fault, detail string) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.tally.faults[kind]++
	if kind != statementSlow {
		sim.log = append(sim.log, logLine{time.Now(), kind, detail})
	}
}

func (sim *simulation) count(kind metric, n int) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.tally.counts[kind] += n
}

// logLine is one line of the history.
type logLine struct {
	at     time.Time
	kind   fault
	detail string
}

// history returns all faults of a run, and what the ledger stores about its reminders.
func (sim *simulation) history() string {
	var b strings.Builder
	for _, l := range sim.log {
		fmt.Fprintf(&b, "%s %s: %s\n", timeOfDay(l.at), l.kind, l.detail)
	}
	return b.String() + strings.Join(sim.details, "\n")
}

// violate records that an invariant does not hold. Only the first violations are kept.
func (sim *simulation) violate(format string, args ...any) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if len(sim.violations) == 20 {
		return
	}
	sim.violations = append(sim.violations, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// report returns the violations, with the details of the reminders that they name.
func (sim *simulation) report() string {
	lines := sim.violations
	text := strings.Join(lines, "\n")
	for i, id := range sim.ids {
		if i < len(sim.details) && strings.Contains(text, fmt.Sprint(id)) {
			lines = append(lines, sim.details[i])
		}
	}
	return strings.Join(lines, "\n")
}

// newProvider returns the account of a provider's name and a generation. The fingerprint covers both and the
// contract.
func (sim *simulation) newProvider(name string) *simProvider {
	contract := []ledger.Contract{
		{},
		{Kind: ledger.ContractIdempotent, Window: 45 * time.Second},
		{Kind: ledger.ContractIdempotent, Window: 5 * time.Minute},
		{Kind: ledger.ContractLookup},
	}[sim.rnd.intN(4)]
	fingerprint := fmt.Sprintf("%s/%d/%s/%s", name, sim.rnd.intN(2), contract.Kind, contract.Window)
	if sim.providers[fingerprint] == nil {
		sim.providers[fingerprint] = &simProvider{
			sim: sim, accepted: map[string]acceptance{}, rnd: sim.rand(providerActor + len(sim.providers)),
			lag:   []time.Duration{0, 0, 20 * time.Second, 3 * time.Minute}[sim.rnd.intN(4)],
			route: ledger.Route{Provider: name, Fingerprint: fingerprint, Contract: contract},
		}
	}
	return sim.providers[fingerprint]
}

func (sim *simulation) newConfig() config {
	p := config{
		channels:  map[string]string{},
		onUnknown: []ledger.OnUnknown{ledger.Hold, ledger.Hold, ledger.AssumeSent, ledger.Resend}[sim.rnd.intN(4)],
	}
	names := [][]string{{"a", "b"}, {"a", "b"}, {"a"}, {"b"}}[sim.rnd.intN(4)]
	for _, name := range names {
		p.providers = append(p.providers, sim.newProvider(name))
	}
	for _, channel := range []string{"email", "sms"} {
		p.channels[channel] = names[sim.rnd.intN(len(names))]
	}
	return p
}
