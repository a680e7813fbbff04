package simulation_test

import (
	"fmt"
	"strings"
	"time"
)

// fault is a kind of fault.
type fault string

const (
	ledgerUnavailable   fault = "the ledger is unavailable"
	replyLost           fault = "the reply of a statement is lost"
	statementSlow       fault = "a statement is slow"
	statementStalled    fault = "a statement stalls past a lease"
	pollFailed          fault = "a poll fails"
	replicaPaused       fault = "a replica is paused"
	replicaCrashed      fault = "a replica crashes"
	replicaStopped      fault = "a replica stops"
	reconfigured        fault = "a replica starts with another configuration"
	clockAhead          fault = "the ledger's clock jumps ahead"
	clockBack           fault = "the ledger's clock jumps back"
	gateClosed          fault = "an operator closes a gate"
	redelivered         fault = "a message is redelivered after its ack"
	brokerTimeout       fault = "a broker closes the connection"
	otherContent        fault = "a delivery with other content"
	reminderCancelled   fault = "a cancel"
	notWanted           fault = "a reminder is obsolete"
	relevanceUnanswered fault = "a relevance check is not answered"
	lookupUnanswered    fault = "a lookup is not answered"
	lookupDenied        fault = "a lookup does not find an accepted message"
	reportedAccepted    fault = "a provider reports acceptance"
	reportedFailed      fault = "a provider reports a bounce, a failure or a complaint"
	eventRepeated       fault = "a status event is repeated"
	sweepStarted        fault = "an operator starts a sweep"
	resolvedSent        fault = "an operator resolves as sent"
	resolvedNotSent     fault = "an operator resolves as not sent"
	resolvedAbandoned   fault = "an operator abandons an entry"
	decisionStale       fault = "an operator decides on an outdated version"
	failedOver          fault = "the ledger fails over without loss"
	failedOverWithLoss  fault = "the ledger fails over and loses its last commits"

	brokerGaveUp         fault = "a broker's dead-letter queue delivers a message"
	redriveByFilter      fault = "an operator redrives by a filter"
	redriveByName        fault = "an operator redrives named dead letters"
	redrivesRace         fault = "two redrives of the same dead letters race"
	redriveRepeated      fault = "a redrive request is repeated with its key"
	keyReused            fault = "a key is reused for another redrive request"
	redriveCancelled     fault = "an operator cancels a redrive"
	deadLetterDiscarded  fault = "an operator discards a dead letter"
	userErased           fault = "a user's data is erased"
	providerPaused       fault = "an operator pauses a provider"
	providerResumed      fault = "an operator resumes a provider"
	crashedInRedrive     fault = "a replica crashes during a redrive"
	crashedInRetention   fault = "a replica crashes during a purge or an erasure"
	replyLostInRedrive   fault = "a redrive loses a reply"
	replyLostInRetention fault = "a purge or an erasure loses a reply"
)

// faults returns every kind that the runs must reach.
func faults() []fault {
	all := []fault{
		ledgerUnavailable, replyLost, statementSlow, statementStalled, pollFailed, replicaPaused, replicaCrashed,
		replicaStopped, reconfigured, clockAhead, clockBack, gateClosed, redelivered, brokerTimeout, otherContent,
		reminderCancelled, notWanted, relevanceUnanswered, lookupUnanswered, lookupDenied, reportedAccepted,
		reportedFailed, eventRepeated, sweepStarted, resolvedSent, resolvedNotSent, resolvedAbandoned,
		decisionStale, failedOver, brokerGaveUp, redriveByFilter, redriveByName, redrivesRace, redriveRepeated,
		keyReused, redriveCancelled, deadLetterDiscarded, userErased, providerPaused, providerResumed,
		crashedInRedrive, crashedInRetention, replyLostInRedrive, replyLostInRetention,
	}
	if *forgetfulFlag {
		all = append(all, failedOverWithLoss)
	}
	for m := range behaviors {
		all = append(all, m.fault())
	}
	return all
}

// minor reports whether a fault is an everyday event: it is counted, but not in the mean.
func (f fault) minor() bool {
	return f == statementSlow || f == pollFailed || f == reportedAccepted || f == accepts.fault()
}

// metric is a count of something other than faults.
type metric string

const (
	entries                  metric = "entries"
	acks                     metric = "acks and 202s"
	cancels                  metric = "cancels"
	calls                    metric = "provider calls"
	repeatedCalls            metric = "calls after the first"
	callsInDoubt             metric = "calls in doubt"
	sends                    metric = "sends"
	secondSends              metric = "second sends, each after a risk taken"
	risks                    metric = "risks taken"
	leaseExpirations         metric = "expired leases"
	lateOutcomes             metric = "outcomes of late holders"
	endedUnknown             metric = "ended unknown"
	gatesMet                 metric = "slots refused at closed gates"
	lookups                  metric = "lookups"
	decisions                metric = "decisions of operators"
	secondSendAlarms         metric = "possible second sends recorded"
	remindersWithLostCommits metric = "reminders whose commits were lost"
	redrivenEntries          metric = "dead letters redriven"
	reparsedMessages         metric = "malformed messages reparsed"
	redriveItems             metric = "items of redrives"
	skippedItems             metric = "items skipped"
	unprocessedItems         metric = "items not processed, in cancelled redrives"
	resumedItems             metric = "items redriven by one replica and recorded by another"
	sendsAfterRedrive        metric = "sends after a redrive"
	payloadsPurged           metric = "payloads purged"
	entriesDeleted           metric = "entries deleted, past the memory"
	refusedTooOld            metric = "later deliveries refused"
	entriesErased            metric = "entries erased"
)

func metrics() []metric {
	return []metric{
		entries, acks, cancels, calls, repeatedCalls, callsInDoubt, sends, risks, secondSends, leaseExpirations,
		lateOutcomes, endedUnknown, gatesMet, lookups, decisions, secondSendAlarms, redrivenEntries,
		reparsedMessages, redriveItems, skippedItems, unprocessedItems, resumedItems, sendsAfterRedrive,
		payloadsPurged, entriesDeleted, refusedTooOld, entriesErased,
	}
}

// rare returns the metrics that the runs need not reach.
func rare() []metric { return []metric{remindersWithLostCommits} }

// tally is the counts over all seeds.
type tally struct {
	runs   int
	failed []uint64 // the failed seeds
	faults map[fault]int
	counts map[metric]int
	time   time.Duration
}

func newTally() tally { return tally{faults: map[fault]int{}, counts: map[metric]int{}} }

func (sum *tally) add(b tally) {
	sum.runs += b.runs
	sum.failed = append(sum.failed, b.failed...)
	sum.time += b.time
	for kind, n := range b.faults {
		sum.faults[kind] += n
	}
	for kind, n := range b.counts {
		sum.counts[kind] += n
	}
}

// mean returns the number of faults in a run, on average.
func (sum *tally) mean() float64 {
	all := 0
	for kind, n := range sum.faults {
		if !kind.minor() {
			all += n
		}
	}
	return float64(all) / float64(max(sum.runs, 1))
}

func (sum *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d failed; %.1f faults a run; %.0f h simulated\n", sum.runs, len(sum.failed), sum.mean(), sum.time.Hours())
	for _, kind := range append(metrics(), rare()...) {
		fmt.Fprintf(&b, "%10d  %s\n", sum.counts[kind], kind)
	}
	fmt.Fprintf(&b, "Injected faults, the minor ones in brackets:\n")
	for _, kind := range faults() {
		line := "%10d  %s\n"
		if kind.minor() {
			line = "%10d  (%s)\n"
		}
		fmt.Fprintf(&b, line, sum.faults[kind], kind)
	}
	return b.String()
}

// unreached lists what the runs must reach and did not.
func (sum *tally) unreached() (missing []string) {
	for _, kind := range faults() {
		if sum.faults[kind] == 0 {
			missing = append(missing, string(kind))
		}
	}
	for _, kind := range metrics() {
		if sum.counts[kind] == 0 {
			missing = append(missing, string(kind))
		}
	}
	return missing
}
