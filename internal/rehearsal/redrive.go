package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// Size and rate of the batch.
const (
	batchSize    = 3
	itemInterval = 1500 * time.Millisecond // between two items: time to kill the process while no call is in flight
	fastRate     = 100                     // items a second where nothing has to happen between them
)

// deadLetter is a reminder that became a dead letter, and what happened to it.
type deadLetter struct {
	reminder      string
	firstDelivery delivery
	calls         []call              // that the provider received for it
	detail        *client.EntryDetail // in the end; nil if the ledger has no entry
}

// batch is what was observed while a batch of dead letters was redriven.
type batch struct {
	deadLetters []deadLetter
	preview     client.RedriveReport
	written     int  // entries that the preview changed
	sent        int  // calls that the provider received for the preview
	sameRedrive bool // the repeated request returned the existing redrive
	endedMidway bool // the process was killed in the middle of the redrive
	first       client.RedriveReport
	second      client.RedriveReport
	sentAgain   int // calls that the provider received for the second redrive
}

// redriveTwice runs the second part: a batch of dead letters is redriven with a crash in the middle, and then redriven
// once more.
func (sc *scenario) redriveTwice(ctx context.Context) ([]string, error) {
	sc.steps = 0
	sc.title("a batch redriven twice, " + sc.history.headline())
	for _, step := range []func(context.Context) error{sc.createDeadLetters, sc.previewBatch, sc.redrive, sc.resume, sc.redriveAgain, sc.printDeadLetters} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	findings := judgeBatch(sc.batch)
	sc.verdict(findings, sc.batch.summary)
	return findings, nil
}

// createDeadLetters delivers reminders whose addresses are gone. A refusal leaves no doubt under any contract.
func (sc *scenario) createDeadLetters(ctx context.Context) error {
	sc.step("The provider refuses %d reminders, since their addresses are gone: they become dead letters.", batchSize)
	for i := range batchSize {
		letter := deadLetter{reminder: fmt.Sprintf("%s-d%d", sc.config.name, i+1)}
		sc.provider.expect(letter.reminder)
		now := time.Now().UTC()
		body, err := json.Marshal(client.Reminder{
			ReminderID: letter.reminder, Type: sc.history.typeName, Channel: sc.config.name, To: "rehearsal@rehearsal.invalid",
			Content: map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."}, CreatedAt: now,
		})
		if err != nil {
			return fmt.Errorf("rehearse: %w", err)
		}
		push := *sc.broker
		push.message, push.body = letter.reminder+"-m1", body
		if letter.firstDelivery, err = sc.untilAcked(ctx, push); err != nil {
			return err
		}
		sc.line("broker", "%s is answered %s", letter.reminder, letter.firstDelivery)
		sc.batch.deadLetters = append(sc.batch.deadLetters, letter)
	}
	return nil
}

// untilAcked delivers a message until it is acked or the timeout has passed.
func (sc *scenario) untilAcked(ctx context.Context, push broker) (delivery, error) {
	for until := time.Now().Add(sc.timeout()); ; {
		d, err := push.deliver(ctx, sc.gateway.url)
		if err != nil || d.acked() || time.Now().After(until) {
			return d, err // reported by the verdict
		}
		wait := max(d.RetryAfter, time.Second)
		sc.wait(wait, "the broker holds the message back")
		if err := sleep(ctx, wait); err != nil {
			return d, err
		}
	}
}

// redriveRequest selects the batch as an operator does: by the class of the dead letters and the provider of this run. It
// sets a new deadline, since that of the type may be shorter than the rehearsal.
func (sc *scenario) redriveRequest() client.RedriveRequest {
	return client.RedriveRequest{
		Filter: client.RedriveFilter{Class: client.RedriveFilterClassRecipient, Provider: sc.config.name}, Limit: 10 * batchSize,
		Rate: float64(time.Second) / float64(itemInterval), Deadline: sc.deadline, Reason: "rehearsal: the addresses exist again",
	}
}

// previewBatch requests a preview of the redrive, which must change nothing.
func (sc *scenario) previewBatch(ctx context.Context) error {
	sc.provider.startAccepting()
	sc.deadline = time.Now().UTC().Truncate(time.Second).Add(max(10*time.Minute, 10*sc.setting.Lease))
	sc.step("The addresses exist again, and an operator previews the redrive (dry_run).")
	if err := sc.readDeadLetters(ctx); err != nil {
		return err
	}
	before, calls := sc.batch.versions(), sc.batch.called()
	var err error
	if sc.batch.preview, err = sc.adminClient.preview(ctx, sc.redriveRequest()); err != nil {
		return err
	}
	if err := sc.readDeadLetters(ctx); err != nil {
		return err
	}
	for id, version := range sc.batch.versions() {
		if before[id] != version {
			sc.batch.written++
		}
	}
	sc.batch.sent = sc.batch.called() - calls
	sc.line("operator", "reads the expected results: %s", resultCounts(sc.batch.preview))
	sc.line("provider", "received %d calls for it, and the ledger changed %d entries", sc.batch.sent, sc.batch.written)
	return nil
}

// redrive requests the redrive twice with the same key, and kills the process in the middle of it.
func (sc *scenario) redrive(ctx context.Context) error {
	sc.step("The operator redrives the batch with an Idempotency-Key, and repeats the same request.")
	begin, key := time.Now(), sc.config.name+"-k1"
	started, _, err := sc.adminClient.redrive(ctx, key, sc.redriveRequest())
	if err != nil {
		return err
	}
	sc.line("operator", "gets redrive %s, of %d items", started.ID, started.Size)
	repeated, created, err := sc.adminClient.redrive(ctx, key, sc.redriveRequest())
	if err != nil {
		return err
	}
	sc.batch.sameRedrive = repeated.ID == started.ID && !created
	sc.line("operator", "repeats the request, and gets redrive %s", repeated.ID)
	sc.step("The process ends in the middle of the redrive.")
	if sc.batch.first, err = sc.awaitMidway(ctx, started.ID, begin); err != nil {
		return err
	}
	if !sc.batch.endedMidway {
		sc.line("gateway", "was done before it could be killed: %s", reportLine(sc.batch.first))
		return nil
	}
	if err := sc.gateway.kill(); err != nil {
		return err
	}
	sc.line("gateway", "process %d ended with kill -9, when the report was: %s", sc.gateway.cmd.Process.Pid, reportLine(sc.batch.first))
	return nil
}

// awaitMidway waits until some items have a result, some have none, and no call to the provider is in flight: calls whose
// answer is lost belong to the first part. begin is a time before the first item.
func (sc *scenario) awaitMidway(ctx context.Context, id string, begin time.Time) (client.RedriveReport, error) {
	left, lastPoll := batchSize, begin
	for lastResult, until := begin, begin.Add(sc.timeout()); ; {
		polled := time.Now()
		report, err := sc.adminClient.report(ctx, id)
		if err != nil {
			return report, err
		}
		if t := report.Counts; t.Waiting < left {
			// A time before the result, so the next item starts no earlier than itemInterval after it.
			left, lastResult = t.Waiting, lastPoll
		}
		lastPoll = polled
		switch {
		case report.Redrive.State != client.RedriveStateRunning || left == 0 || time.Now().After(until):
			return report, nil // reported by the verdict
		case left < batchSize && report.Counts.Pending == 0 && time.Since(lastResult) < itemInterval*9/10:
			sc.batch.endedMidway = true
			return report, nil
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return report, err
		}
	}
}

// resume starts another process, which continues the redrive.
func (sc *scenario) resume(ctx context.Context) (err error) {
	if sc.batch.endedMidway {
		sc.step("Another process starts on the same ledger, and continues the redrive.")
		if err := sc.serve(ctx); err != nil {
			return err
		}
		sc.line("gateway", "process %d serves", sc.gateway.cmd.Process.Pid)
		sc.wait(sc.setting.Lease, "about, until the lease of the killed process on the redrive expires")
	}
	if sc.batch.first, err = sc.adminClient.awaitRedrive(ctx, sc.batch.first.Redrive.ID, sc.timeout()); err != nil {
		return err
	}
	sc.line("operator", "reads the report: %s", reportLine(sc.batch.first))
	sc.printAccepted()
	return nil
}

// redriveAgain redrives the same batch by its ids, like an operator who does not know of the first redrive.
func (sc *scenario) redriveAgain(ctx context.Context) error {
	sc.step("The operator redrives the same batch once more, by its ids.")
	if err := sc.readDeadLetters(ctx); err != nil {
		return err
	}
	calls := sc.batch.called()
	request := client.RedriveRequest{Ids: sc.batch.ids(), Rate: fastRate, Deadline: sc.deadline, Reason: "rehearsal: the same batch again"}
	if len(request.Ids) == 0 {
		sc.line("operator", "finds none of it in the ledger")
		return nil
	}
	started, _, err := sc.adminClient.redrive(ctx, sc.config.name+"-k2", request)
	if err != nil {
		return err
	}
	if sc.batch.second, err = sc.adminClient.awaitRedrive(ctx, started.ID, sc.timeout()); err != nil {
		return err
	}
	sc.line("operator", "reads the report: %s", reportLine(sc.batch.second))
	sc.readCalls()
	sc.batch.sentAgain = sc.batch.called() - calls
	sc.printAccepted()
	return nil
}

// printDeadLetters prints the final state of each dead letter.
func (sc *scenario) printDeadLetters(ctx context.Context) error {
	sc.step("The entry of each, and the calls that the provider received for it.")
	if err := sc.readDeadLetters(ctx); err != nil {
		return err
	}
	for _, letter := range sc.batch.deadLetters {
		stored := "no entry"
		if letter.detail != nil {
			e := letter.detail.Entry
			stored = fmt.Sprintf("%s (%s), attempts %d, redrives %d, receipt %q", e.State, e.Reason, e.Attempts, e.Redrives, e.Receipt)
		}
		sc.line(strings.TrimPrefix(letter.reminder, sc.config.name+"-"), "%s; called %s, accepted %s", stored, timesText(len(letter.calls)), timesText(letter.acceptedCount()))
	}
	return nil
}

func (sc *scenario) printAccepted() {
	sc.readCalls()
	accepted := 0
	for _, letter := range sc.batch.deadLetters {
		accepted += letter.acceptedCount()
	}
	sc.line("provider", "has accepted %d messages for %d reminders", accepted, len(sc.batch.deadLetters))
}

// readCalls reads the calls that the provider received.
func (sc *scenario) readCalls() {
	for i := range sc.batch.deadLetters {
		sc.batch.deadLetters[i].calls = sc.provider.callsFor(sc.batch.deadLetters[i].reminder)
	}
}

// readDeadLetters reads the calls and the entries.
func (sc *scenario) readDeadLetters(ctx context.Context) (err error) {
	sc.readCalls()
	for i := range sc.batch.deadLetters {
		letter := &sc.batch.deadLetters[i]
		if letter.detail, err = sc.adminClient.detail(ctx, letter.reminder); err != nil {
			return err
		}
	}
	return nil
}

// versions maps the ids of the entries to their versions.
func (b batch) versions() map[string]int64 {
	all := map[string]int64{}
	for _, letter := range b.deadLetters {
		if letter.detail != nil {
			all[letter.detail.Entry.ID] = letter.detail.Entry.Version
		}
	}
	return all
}

// ids returns the ids of the entries in the order in which they became dead letters.
func (b batch) ids() (all []string) {
	for _, letter := range b.deadLetters {
		if letter.detail != nil {
			all = append(all, letter.detail.Entry.ID)
		}
	}
	return all
}

// called counts the calls that the provider received.
func (b batch) called() (n int) {
	for _, letter := range b.deadLetters {
		n += len(letter.calls)
	}
	return n
}

// acceptedCount counts the messages that the provider accepted, without recognised repeats.
func (letter deadLetter) acceptedCount() (n int) {
	for _, c := range letter.calls {
		if c.Accepted {
			n++
		}
	}
	return n
}
