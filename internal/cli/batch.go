package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// Sizes of a batch.
const (
	batchSize = 3
	turnGap   = 1500 * time.Millisecond // between two turns: time to end a process while nothing is on its way
	fastRate  = 100                     // turns a second where nothing is to happen between them
)

// letter is a reminder that died, and what came of it.
type letter struct {
	reminder string
	died     delivery
	calls    []call        // that the provider got for it
	story    *client.Story // in the end; nil where the ledger holds nothing
}

// batch is what a redrive of dead letters saw.
type batch struct {
	letters   []letter
	preview   client.RedriveReport
	written   int  // entries that the preview changed
	sent      int  // calls that the provider got for the preview
	same      bool // the repeated request was answered with the redrive that stood
	midway    bool // the process ended in the middle of it
	first     client.RedriveReport
	second    client.RedriveReport
	sentAgain int // calls that the provider got for the second redrive
}

// redriveTwice walks the second part: a batch dies, is redriven over a crash, and is redriven once more.
func (w *walk) redriveTwice(ctx context.Context) ([]string, error) {
	w.steps = 0
	w.title("the batch redriven twice, " + w.history.headline())
	for _, step := range []func(context.Context) error{w.die, w.foresee, w.redrive, w.goOn, w.redriveAgain, w.lookAtLetters} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	findings := judgeBatch(w.batch)
	w.verdict(findings, w.batch.praise)
	return findings, nil
}

// die : reminders are delivered whose addresses are gone. No contract leaves a doubt about a refusal.
func (w *walk) die(ctx context.Context) error {
	w.step("The provider refuses %d reminders, their addresses being gone: dead letters.", batchSize)
	for i := range batchSize {
		l := letter{reminder: fmt.Sprintf("%s-d%d", w.run.name, i+1)}
		w.provider.expect(l.reminder)
		now := time.Now().UTC()
		body, err := json.Marshal(client.Reminder{
			ReminderID: l.reminder, Type: w.history.kind, Channel: w.run.name, To: "rehearsal@rehearsal.invalid",
			Content: map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."}, CreatedAt: now,
		})
		if err != nil {
			return fmt.Errorf("rehearse: %w", err)
		}
		push := *w.broker
		push.message, push.body = l.reminder+"-m1", body
		if l.died, err = w.untilAcked(ctx, push); err != nil {
			return err
		}
		w.line("broker", "%s is answered %s", l.reminder, l.died)
		w.batch.letters = append(w.batch.letters, l)
	}
	return nil
}

// untilAcked brings a message until it is acked, as long as patience lasts.
func (w *walk) untilAcked(ctx context.Context, push broker) (delivery, error) {
	for until := time.Now().Add(w.patience()); ; {
		d, err := push.deliver(ctx, w.gateway.url)
		if err != nil || d.acked() || time.Now().After(until) {
			return d, err // the verdict minds
		}
		wait := max(d.RetryAfter, time.Second)
		w.wait(wait, "the broker holds the message back")
		if err := pause(ctx, wait); err != nil {
			return d, err
		}
	}
}

// asked is the batch as an operator selects it: by what it died of, at the run's own provider. The deadline is
// granted anew, for a type's may be shorter than the rehearsal.
func (w *walk) asked() client.RedriveRequest {
	return client.RedriveRequest{
		Filter: client.RedriveFilter{Class: client.RedriveFilterClassRecipient, Provider: w.run.name}, Limit: 10 * batchSize,
		Rate: float64(time.Second) / float64(turnGap), Deadline: w.granted, Reason: "rehearsal: the addresses are back",
	}
}

// foresee : a preview tells what would become of the batch, and does nothing.
func (w *walk) foresee(ctx context.Context) error {
	w.provider.mend()
	w.granted = time.Now().UTC().Truncate(time.Second).Add(max(10*time.Minute, 10*w.setting.Lease))
	w.step("The addresses are back, and an operator previews the batch (dry_run).")
	if err := w.readLetters(ctx); err != nil {
		return err
	}
	before, calls := w.batch.versions(), w.batch.called()
	var err error
	if w.batch.preview, err = w.desk.preview(ctx, w.asked()); err != nil {
		return err
	}
	if err := w.readLetters(ctx); err != nil {
		return err
	}
	for id, version := range w.batch.versions() {
		if before[id] != version {
			w.batch.written++
		}
	}
	w.batch.sent = w.batch.called() - calls
	w.line("operator", "is told what would become of them: %s", results(w.batch.preview))
	w.line("provider", "got %d calls for it, and the ledger has changed %d of them", w.batch.sent, w.batch.written)
	return nil
}

// redrive : asked for, asked for again under the same key, and ended in its middle.
func (w *walk) redrive(ctx context.Context) error {
	w.step("The operator redrives the batch under an Idempotency-Key, and the same request comes once more.")
	begun, key := time.Now(), w.run.name+"-k1"
	started, _, err := w.desk.redrive(ctx, key, w.asked())
	if err != nil {
		return err
	}
	w.line("operator", "is answered with redrive %s, of %d items", started.ID, started.Size)
	repeated, laidOut, err := w.desk.redrive(ctx, key, w.asked())
	if err != nil {
		return err
	}
	w.batch.same = repeated.ID == started.ID && !laidOut
	w.line("operator", "asks once more, and is answered with redrive %s", repeated.ID)
	w.step("The process ends in the middle of the redrive.")
	if w.batch.first, err = w.midway(ctx, started.ID, begun); err != nil {
		return err
	}
	if !w.batch.midway {
		w.line("gateway", "was done before it could be ended: %s", told(w.batch.first))
		return nil
	}
	if err := w.gateway.kill(); err != nil {
		return err
	}
	w.line("gateway", "process %d ended with kill -9, when the report said: %s", w.gateway.cmd.Process.Pid, told(w.batch.first))
	return nil
}

// midway waits until some items had their turn, some have not, and nothing is on its way to the provider: a call
// that nobody hears the end of is the first part's. begun is before the first turn.
func (w *walk) midway(ctx context.Context, id string, begun time.Time) (client.RedriveReport, error) {
	left, looked := batchSize, begun
	for turned, until := begun, begun.Add(w.patience()); ; {
		looks := time.Now()
		report, err := w.desk.report(ctx, id)
		if err != nil {
			return report, err
		}
		if t := report.Tally; t.Waiting < left {
			left, turned = t.Waiting, looked // not before: so the next turn comes no earlier than a gap after it
		}
		looked = looks
		switch {
		case report.Redrive.State != client.RedriveStateRunning || left == 0 || time.Now().After(until):
			return report, nil // the verdict minds
		case left < batchSize && report.Tally.Pending == 0 && time.Since(turned) < turnGap*9/10:
			w.batch.midway = true
			return report, nil
		}
		if err := pause(ctx, glance); err != nil {
			return report, err
		}
	}
}

// goOn : another process takes the redrive up where it stopped.
func (w *walk) goOn(ctx context.Context) (err error) {
	if w.batch.midway {
		w.step("Another process starts on the same ledger, and goes on with the redrive.")
		if err := w.serve(ctx); err != nil {
			return err
		}
		w.line("gateway", "process %d serves", w.gateway.cmd.Process.Pid)
		w.wait(w.setting.Lease, "about, for the ended process to lose its hold of the redrive")
	}
	if w.batch.first, err = w.desk.ends(ctx, w.batch.first.Redrive.ID, w.patience()); err != nil {
		return err
	}
	w.line("operator", "reads the report: %s", told(w.batch.first))
	w.tellTaken()
	return nil
}

// redriveAgain : the same batch by its ids, as somebody would who does not know of the first redrive.
func (w *walk) redriveAgain(ctx context.Context) error {
	w.step("The operator redrives the same batch once more, by its ids.")
	if err := w.readLetters(ctx); err != nil {
		return err
	}
	calls := w.batch.called()
	ask := client.RedriveRequest{Ids: w.batch.ids(), Rate: fastRate, Deadline: w.granted, Reason: "rehearsal: the same batch again"}
	if len(ask.Ids) == 0 {
		w.line("operator", "finds none of it in the ledger")
		return nil
	}
	started, _, err := w.desk.redrive(ctx, w.run.name+"-k2", ask)
	if err != nil {
		return err
	}
	if w.batch.second, err = w.desk.ends(ctx, started.ID, w.patience()); err != nil {
		return err
	}
	w.line("operator", "reads the report: %s", told(w.batch.second))
	w.gather()
	w.batch.sentAgain = w.batch.called() - calls
	w.tellTaken()
	return nil
}

// lookAtLetters tells where each came to rest.
func (w *walk) lookAtLetters(ctx context.Context) error {
	w.step("What the ledger knows of each, and what the provider got for it.")
	if err := w.readLetters(ctx); err != nil {
		return err
	}
	for _, l := range w.batch.letters {
		stands := "no entry"
		if l.story != nil {
			e := l.story.Entry
			stands = fmt.Sprintf("%s (%s), attempts %d, redrives %d, receipt %q", e.State, e.Reason, e.Attempts, e.Redrives, e.Receipt)
		}
		w.line(strings.TrimPrefix(l.reminder, w.run.name+"-"), "%s; called %s, taken %s", stands, times(len(l.calls)), times(l.taken()))
	}
	return nil
}

func (w *walk) tellTaken() {
	w.gather()
	taken := 0
	for _, l := range w.batch.letters {
		taken += l.taken()
	}
	w.line("provider", "has taken %d messages for %d reminders", taken, len(w.batch.letters))
}

// gather takes down what the provider got.
func (w *walk) gather() {
	for i := range w.batch.letters {
		w.batch.letters[i].calls = w.provider.got(w.batch.letters[i].reminder)
	}
}

// readLetters takes down what the ledger holds too.
func (w *walk) readLetters(ctx context.Context) (err error) {
	w.gather()
	for i := range w.batch.letters {
		l := &w.batch.letters[i]
		if l.story, err = w.desk.story(ctx, l.reminder); err != nil {
			return err
		}
	}
	return nil
}

// versions are those of the entries, by their ids.
func (b batch) versions() map[string]int64 {
	all := map[string]int64{}
	for _, l := range b.letters {
		if l.story != nil {
			all[l.story.Entry.ID] = l.story.Entry.Version
		}
	}
	return all
}

// ids are those of the entries, in the order in which they died.
func (b batch) ids() (all []string) {
	for _, l := range b.letters {
		if l.story != nil {
			all = append(all, l.story.Entry.ID)
		}
	}
	return all
}

// called counts the calls that the provider got.
func (b batch) called() (n int) {
	for _, l := range b.letters {
		n += len(l.calls)
	}
	return n
}

// taken counts what the provider took as messages of their own.
func (l letter) taken() (n int) {
	for _, c := range l.calls {
		if c.Taken {
			n++
		}
	}
	return n
}
