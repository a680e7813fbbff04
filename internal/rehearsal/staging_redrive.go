package rehearsal

import (
	"context"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// refusedRecipient makes a sandbox refuse every message.
const refusedRecipient = "refuse@rehearsal.invalid"

// stagingSize is the number of dead letters on a running gateway.
const stagingSize = 2

// stagingBatch is what was observed while a batch was redriven on a running gateway. The dead letters are refused for
// good, so each redrive may call the provider for them. The entry that the first part sent is part of the batch, and no
// redrive may change it.
type stagingBatch struct {
	deadLetters []client.Entry // before the first redrive
	sent        *client.Entry  // by the first part; nil if it was not sent
	preview     client.RedriveReport
	written     int // entries that the preview changed
	sameRedrive bool
	first       client.RedriveReport
	between     []client.Entry // the batch after the first redrive
	second      client.RedriveReport
	after       []client.Entry // the batch after the second redrive
}

// redriveTwice runs the second part as far as the recipients of a sandbox allow.
func (sc *stagingScenario) redriveTwice(ctx context.Context) ([]string, error) {
	sc.steps = 0
	sc.title("a batch redriven twice, through the gateway at " + sc.URL)
	sc.line("left out", "the end of the process, and a dead letter that is sent when it is redriven (a sandbox always refuses %s); -config rehearses both", refusedRecipient)
	b := new(stagingBatch)
	for _, step := range []func(context.Context, *stagingBatch) error{sc.createDeadLetters, sc.previewBatch, sc.redrive, sc.redriveAgain, sc.discardDeadLetters} {
		if err := step(ctx, b); err != nil {
			return nil, err
		}
		if len(b.deadLetters) == 0 {
			break // nothing to redrive; reported by the verdict
		}
	}
	wrong := judgeStaging(*b)
	sc.verdict(wrong, func() string {
		return fmt.Sprintf("%d dead letters redriven, each tried once more and dead again; redriven once more, all skipped", len(b.deadLetters))
	})
	return wrong, nil
}

func (sc *stagingScenario) createDeadLetters(ctx context.Context, b *stagingBatch) error {
	sc.step("The provider refuses %d reminders: they become dead letters.", stagingSize)
	for i := range stagingSize {
		body := sc.body
		body.ReminderID, body.To = fmt.Sprintf("%s-d%d", sc.reminder, i+1), refusedRecipient
		detail, err := sc.deliverUntilSettled(ctx, body)
		switch {
		case err != nil:
			return err
		case detail == nil:
			sc.line("ledger", "has no entry for it")
		case detail.Entry.Class != client.ClassPermanent || detail.Entry.State != client.StateDead:
			sc.line("ledger", "has it as %s (%s), which no sandbox does for %s", detail.Entry.State, detail.Entry.Reason, refusedRecipient)
		default:
			b.deadLetters = append(b.deadLetters, detail.Entry)
		}
	}
	if sc.detail == nil || sc.detail.Entry.State != client.StateSent {
		sc.line("left out", "an entry that was sent already, in the same batch: the reminder of the first part is not sent")
		return nil
	}
	b.sent = &sc.detail.Entry
	return nil
}

// deliverUntilSettled delivers a reminder until its entry is settled.
func (sc *stagingScenario) deliverUntilSettled(ctx context.Context, body client.Reminder) (*client.EntryDetail, error) {
	for until := time.Now().Add(stagingTimeout); ; {
		if err := sc.deliverOnce(ctx, body); err != nil {
			return nil, err
		}
		detail, err := sc.adminClient.detail(ctx, body.ReminderID)
		if err != nil {
			return nil, err
		}
		settled := detail != nil && detail.Entry.State != client.StateSending && detail.Entry.State != client.StateWaiting
		if settled || time.Now().After(until) {
			return detail, nil
		}
		sc.wait(2*time.Second, "it is not settled")
		if err := sleep(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// redriveRequest selects the batch by its ids, with or without the class permanent.
func (b *stagingBatch) redriveRequest(permanent bool) client.RedriveRequest {
	request := client.RedriveRequest{Rate: fastRate, Permanent: permanent, Reason: "rehearsal: of its own dead letters"}
	for _, e := range b.batch() {
		request.Ids = append(request.Ids, e.ID)
	}
	return request
}

// batch returns all entries of the batch as they were before the first redrive.
func (b *stagingBatch) batch() []client.Entry {
	all := append([]client.Entry(nil), b.deadLetters...)
	if b.sent != nil {
		all = append(all, *b.sent)
	}
	return all
}

func (sc *stagingScenario) previewBatch(ctx context.Context, b *stagingBatch) (err error) {
	sc.step("An operator previews the redrive (dry_run, permanent) of these and of the entry that the first part sent.")
	if b.preview, err = sc.adminClient.preview(ctx, b.redriveRequest(true)); err != nil {
		return err
	}
	now, err := sc.entries(ctx, b)
	if err != nil {
		return err
	}
	for i, e := range b.batch() {
		if now[i].Version != e.Version {
			b.written++
		}
	}
	sc.line("operator", "reads the expected results: %s", resultCounts(b.preview))
	sc.line("ledger", "changed %d entries", b.written)
	return nil
}

func (sc *stagingScenario) redrive(ctx context.Context, b *stagingBatch) error {
	sc.step("The operator redrives them with an Idempotency-Key, and repeats the same request.")
	key := sc.reminder + "-k1"
	started, _, err := sc.adminClient.redrive(ctx, key, b.redriveRequest(true))
	if err != nil {
		return err
	}
	sc.line("operator", "gets redrive %s, of %d items", started.ID, started.Size)
	repeated, created, err := sc.adminClient.redrive(ctx, key, b.redriveRequest(true))
	if err != nil {
		return err
	}
	b.sameRedrive = repeated.ID == started.ID && !created
	sc.line("operator", "repeats the request, and gets redrive %s", repeated.ID)
	for _, r := range []client.Redrive{started, repeated} {
		if b.first, err = sc.adminClient.awaitRedrive(ctx, r.ID, stagingTimeout); err != nil {
			return err
		}
		sc.line("operator", "reads the report of %s: %s", r.ID, reportLine(b.first))
		if b.sameRedrive {
			break
		}
	}
	b.between, err = sc.entries(ctx, b)
	return err
}

func (sc *stagingScenario) redriveAgain(ctx context.Context, b *stagingBatch) error {
	sc.step("The operator redrives the same batch once more, without the class permanent.")
	started, _, err := sc.adminClient.redrive(ctx, sc.reminder+"-k2", b.redriveRequest(false))
	if err != nil {
		return err
	}
	if b.second, err = sc.adminClient.awaitRedrive(ctx, started.ID, stagingTimeout); err != nil {
		return err
	}
	sc.line("operator", "reads the report: %s", reportLine(b.second))
	if b.after, err = sc.entries(ctx, b); err != nil {
		return err
	}
	for _, e := range b.after {
		sc.line("entry", "%s: %s (%s), attempts %d, redrives %d", e.ReminderID, e.State, e.Reason, e.Attempts, e.Redrives)
	}
	return nil
}

// discardDeadLetters discards the dead letters, so that a rehearsal raises no alert.
func (sc *stagingScenario) discardDeadLetters(ctx context.Context, b *stagingBatch) error {
	sc.step("The operator discards the rehearsal's dead letters.")
	for _, e := range b.after[:len(b.deadLetters)] {
		if err := sc.adminClient.discard(ctx, e); err != nil {
			sc.line("operator", "cannot discard %s%s", e.ReminderID, causeOf(err))
			continue
		}
		sc.line("operator", "discards %s", e.ReminderID)
	}
	return ctx.Err()
}

// entries reads the current entries of the batch.
func (sc *stagingScenario) entries(ctx context.Context, b *stagingBatch) (now []client.Entry, err error) {
	for _, e := range b.batch() {
		detail, err := sc.adminClient.detail(ctx, e.ReminderID)
		switch {
		case err != nil:
			return nil, err
		case detail == nil:
			return nil, fmt.Errorf("rehearse: the ledger has lost %s", e.ReminderID)
		}
		now = append(now, detail.Entry)
	}
	return now, nil
}

// judgeStaging judges by the counts in the ledger, since the calls that the provider received are not known.
func judgeStaging(b stagingBatch) []string {
	var wrong findings
	if n := len(b.deadLetters); n < stagingSize {
		wrong.add("UNSETTLED", "%d of %d reminders to %s became dead letters; the rest of the part needs a sandbox", n, stagingSize, refusedRecipient)
		if n == 0 {
			return wrong
		}
	}
	want := func(of client.RedriveItemResult) map[string]client.RedriveItemResult {
		all := map[string]client.RedriveItemResult{}
		for _, e := range b.deadLetters {
			all[e.ID] = of
		}
		if b.sent != nil {
			all[b.sent.ID] = client.RedriveItemResultAlreadySent
		}
		return all
	}
	wrong.preview(b.preview, b.written, 0, want(client.RedriveItemResultRedriven))
	wrong.repeat(b.sameRedrive)
	wrong.report("redrive", b.first, want(client.RedriveItemResultRedriven))
	wrong.report("second redrive", b.second, want(client.RedriveItemResultPermanent))
	if again := b.first.Counts.Failed[string(client.ClassPermanent)]; again != len(b.deadLetters) || b.first.Counts.Sent != 0 {
		wrong.add("UNEXPLAINED", "the redrive's report says %d refused again and %d sent, of %d that the provider refuses for good", again, b.first.Counts.Sent, len(b.deadLetters))
	}
	wrong.counts("first", b.batch(), b.between, 1)
	wrong.counts("second", b.between, b.after, 0)
	return wrong
}

// counts compares the attempts of each entry before and after a redrive: a dead letter must have the given number more,
// and an entry that was sent none.
func (f *findings) counts(which string, before, after []client.Entry, more int) {
	for i, e := range after {
		added := e.Attempts - before[i].Attempts
		switch {
		case before[i].State == client.StateSent && (added != 0 || e.State != client.StateSent):
			f.add("DOUBLED", "the %s redrive changed %s, which was sent: %s, %d more attempts", which, e.ReminderID, e.State, added)
		case before[i].State == client.StateSent:
		case added > more:
			f.add("DOUBLED", "the %s redrive called the provider %d times for %s, want %d", which, added, e.ReminderID, more)
		case added < more:
			f.add("LOST", "the %s redrive did not call the provider for %s", which, e.ReminderID)
		case e.State != client.StateDead:
			f.add("UNEXPLAINED", "%s was refused, and its state is %s (%s)", e.ReminderID, e.State, e.Reason)
		}
	}
}
