package simulation_test

import (
	"fmt"
	"strings"
	"time"
)

// fault is a kind of trouble.
type fault string

const (
	away        fault = "the ledger is away"
	lost        fault = "the reply of a write or a read is lost"
	slow        fault = "a statement is slow"
	stalled     fault = "a statement stalls past a lease"
	blind       fault = "a look at what is due, or at the gates, fails"
	paused      fault = "a replica is paused"
	crashed     fault = "a replica crashes"
	drained     fault = "a replica leaves in good order"
	configured  fault = "another configuration"
	leaptAhead  fault = "the ledger's clock leaps ahead"
	leaptBack   fault = "the ledger's clock leaps back"
	shut        fault = "a person closes a gate"
	redelivered fault = "a message comes again after its ack"
	impatient   fault = "a broker hangs up"
	contested   fault = "other content"
	cancelled   fault = "a cancel"
	obsolete    fault = "not wanted any more"
	unasked     fault = "no answer to the question"
	mute        fault = "a provider does not say whether it took it"
	denies      fault = "a provider does not know, or denies, what it took"
	proves      fault = "a provider reports that it took it"
	bounces     fault = "a provider reports a bounce, a failure or a complaint"
	again       fault = "a report comes again"
	swept       fault = "a person starts a sweep"
	saidSent    fault = "a person says that it was sent"
	saidUnsent  fault = "a person says that it was not sent"
	abandoned   fault = "a person abandons it"
	outdated    fault = "a person decides on what has moved on"
	failedOver  fault = "the ledger fails over, and forgets nothing"
	amnesia     fault = "the ledger fails over, and forgets its last commits"

	gaveUp        fault = "a broker gives up, and its dead-letter queue brings it"
	redriven      fault = "a person redrives what fits a filter"
	redrivenNamed fault = "a person redrives dead letters by name"
	racing        fault = "two redrives of the same dead letters race"
	askedTwice    fault = "a redrive is asked for twice under one key"
	otherRequest  fault = "a key is used for another redrive"
	stopped       fault = "a person cancels a redrive"
	discarded     fault = "a person discards a dead letter"
	erased        fault = "a person is erased"
	pausedLane    fault = "a person pauses a provider"
	resumedLane   fault = "a person resumes a provider"
	overRedrive   fault = "a replica crashes over a redrive"
	overForget    fault = "a replica crashes over a walk or an erasure"
	lostRedrive   fault = "a redrive loses a reply"
	lostForget    fault = "a walk or an erasure loses a reply"
)

// faults lists every kind that a run is for.
func faults() []fault {
	all := []fault{
		away, lost, slow, stalled, blind, paused, crashed, drained, configured, leaptAhead, leaptBack, shut,
		redelivered, impatient, contested, cancelled, obsolete, unasked,
		mute, denies, proves, bounces, again, swept, saidSent, saidUnsent, abandoned, outdated, failedOver,
		gaveUp, redriven, redrivenNamed, racing, askedTwice, otherRequest, stopped, discarded, erased, pausedLane, resumedLane,
		overRedrive, overForget, lostRedrive, lostForget,
	}
	if *forget {
		all = append(all, amnesia)
	}
	for m := range moods {
		all = append(all, m.fault())
	}
	return all
}

// mild is what happens to everybody every day: it has its line, and does not count as a fault in the mean.
func (f fault) mild() bool { return f == slow || f == blind || f == proves || f == accepts.fault() }

// figure is something worth counting besides the faults.
type figure string

const (
	entries   figure = "entries"
	acks      figure = "acks and 202s"
	cancels   figure = "cancels"
	calls     figure = "provider calls"
	repeats   figure = "calls after the first"
	doubtful  figure = "calls in doubt"
	sends     figure = "sends"
	seconds   figure = "second sends, each by a risk taken"
	risks     figure = "risks taken"
	lapses    figure = "lapses"
	lates     figure = "late holders"
	unknown   figure = "ended unknown"
	gates     figure = "closed gates met"
	questions figure = "questions to lookup providers"
	resolved  figure = "decisions of people"
	alarms    figure = "possible second sends told of"
	forgotten figure = "reminders of which commits were forgotten"
	reopened  figure = "dead letters put to work again"
	rereads   figure = "unreadable messages read at last"
	items     figure = "items of redrives"
	skipped   figure = "items left alone"
	turnless  figure = "items without a turn, in redrives that a person cancelled"
	resumed   figure = "items put to work by one replica, and settled by another"
	resent    figure = "sends after a redrive"
	purged    figure = "payloads purged"
	deleted   figure = "entries deleted, past the memory"
	tooOld    figure = "deliveries after that, refused"
	erasures  figure = "entries erased"
)

func figures() []figure {
	return []figure{
		entries, acks, cancels, calls, repeats, doubtful, sends, risks, seconds, lapses, lates, unknown, gates, questions, resolved, alarms,
		reopened, rereads, items, skipped, turnless, resumed, resent, purged, deleted, tooOld, erasures,
	}
}

// rare are those that a run need not reach.
func rare() []figure { return []figure{forgotten} }

// tally is what came about, over all seeds.
type tally struct {
	runs    int
	broken  []uint64 // seeds
	fired   map[fault]int
	counted map[figure]int
	time    time.Duration
}

func newTally() tally { return tally{fired: map[fault]int{}, counted: map[figure]int{}} }

func (a *tally) add(b tally) {
	a.runs += b.runs
	a.broken = append(a.broken, b.broken...)
	a.time += b.time
	for kind, n := range b.fired {
		a.fired[kind] += n
	}
	for kind, n := range b.counted {
		a.counted[kind] += n
	}
}

// mean is how many faults a run met.
func (a *tally) mean() float64 {
	all := 0
	for kind, n := range a.fired {
		if !kind.mild() {
			all += n
		}
	}
	return float64(all) / float64(max(a.runs, 1))
}

func (a *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d failed; %.1f faults a run; %.0f h simulated\n", a.runs, len(a.broken), a.mean(), a.time.Hours())
	for _, kind := range append(figures(), rare()...) {
		fmt.Fprintf(&b, "%10d  %s\n", a.counted[kind], kind)
	}
	fmt.Fprintf(&b, "Faults that fired, the mild ones in brackets:\n")
	for _, kind := range faults() {
		line := "%10d  %s\n"
		if kind.mild() {
			line = "%10d  (%s)\n"
		}
		fmt.Fprintf(&b, line, a.fired[kind], kind)
	}
	return b.String()
}

// unreached lists what a run is for and did not meet.
func (a *tally) unreached() (missing []string) {
	for _, kind := range faults() {
		if a.fired[kind] == 0 {
			missing = append(missing, string(kind))
		}
	}
	for _, kind := range figures() {
		if a.counted[kind] == 0 {
			missing = append(missing, string(kind))
		}
	}
	return missing
}
