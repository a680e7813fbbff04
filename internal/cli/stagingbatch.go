package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// refusedRecipient makes a sandbox refuse the message, each time that it is called.
const refusedRecipient = "refuse@rehearsal.invalid"

// stagedSize is how many reminders die on a running gateway.
const stagedSize = 2

// stagedBatch is what a redrive on a running gateway saw. The letters are refused for good, so that each redrive
// may call the provider for them; what the first part sent goes with them, and no redrive may touch it.
type stagedBatch struct {
	letters []client.Entry // as they died
	sent    *client.Entry  // of the first part; nil where it was not sent
	preview client.RedriveReport
	written int // entries that the preview changed
	same    bool
	first   client.RedriveReport
	between []client.Entry // the letters, then what was sent, after the first redrive
	second  client.RedriveReport
	after   []client.Entry // and after the second
}

// redriveTwice walks the second part as far as a sandbox's recipients allow.
func (v *visit) redriveTwice(ctx context.Context) ([]string, error) {
	v.steps = 0
	v.title("the batch redriven twice, through the gateway at " + v.URL)
	v.line("left out", "the end of the process, and a letter that is sent when it is redriven (a sandbox refuses %s for good); -config rehearses both", refusedRecipient)
	b := new(stagedBatch)
	for _, step := range []func(context.Context, *stagedBatch) error{v.die, v.foresee, v.redrive, v.redriveAgain, v.tidy} {
		if err := step(ctx, b); err != nil {
			return nil, err
		}
		if len(b.letters) == 0 {
			break // nothing to redrive; the verdict minds
		}
	}
	wrong := judgeStaged(*b)
	v.verdict(wrong, func() string {
		return fmt.Sprintf("%d dead letters redriven, each tried once more and dead again; redriven once more, all skipped", len(b.letters))
	})
	return wrong, nil
}

func (v *visit) die(ctx context.Context, b *stagedBatch) error {
	v.step("The provider refuses %d reminders: dead letters.", stagedSize)
	for i := range stagedSize {
		body := v.body
		body.ReminderID, body.To = fmt.Sprintf("%s-d%d", v.reminder, i+1), refusedRecipient
		story, err := v.untilRest(ctx, body)
		switch {
		case err != nil:
			return err
		case story == nil:
			v.line("ledger", "holds nothing of it")
		case story.Entry.Class != client.ClassPermanent || story.Entry.State != client.StateDead:
			v.line("ledger", "holds it as %s (%s), which no sandbox does to %s", story.Entry.State, story.Entry.Reason, refusedRecipient)
		default:
			b.letters = append(b.letters, story.Entry)
		}
	}
	if v.story == nil || v.story.Entry.State != client.StateSent {
		v.line("left out", "what was sent already, in the same batch: the first part's reminder is not sent")
		return nil
	}
	b.sent = &v.story.Entry
	return nil
}

// untilRest brings a reminder until the ledger is done with it.
func (v *visit) untilRest(ctx context.Context, body client.Reminder) (*client.Story, error) {
	for until := time.Now().Add(stagingPatience); ; {
		if err := v.bring(ctx, body); err != nil {
			return nil, err
		}
		story, err := v.desk.story(ctx, body.ReminderID)
		if err != nil {
			return nil, err
		}
		resting := story != nil && story.Entry.State != client.StateSending && story.Entry.State != client.StateWaiting
		if resting || time.Now().After(until) {
			return story, nil
		}
		v.wait(2*time.Second, "the ledger is not done with it")
		if err := pause(ctx, 2*time.Second); err != nil {
			return nil, err
		}
	}
}

// asked is the batch by its ids, with the class permanent asked for by name or not.
func (b *stagedBatch) asked(permanent bool) client.RedriveRequest {
	ask := client.RedriveRequest{Rate: fastRate, Permanent: permanent, Reason: "rehearsal: of its own dead letters"}
	for _, e := range b.batch() {
		ask.Ids = append(ask.Ids, e.ID)
	}
	return ask
}

// batch is all that is asked for, as it stood before.
func (b *stagedBatch) batch() []client.Entry {
	all := append([]client.Entry(nil), b.letters...)
	if b.sent != nil {
		all = append(all, *b.sent)
	}
	return all
}

func (v *visit) foresee(ctx context.Context, b *stagedBatch) (err error) {
	v.step("An operator previews the batch (dry_run, permanent): these, and what the first part sent.")
	if b.preview, err = v.desk.preview(ctx, b.asked(true)); err != nil {
		return err
	}
	now, err := v.entries(ctx, b)
	if err != nil {
		return err
	}
	for i, e := range b.batch() {
		if now[i].Version != e.Version {
			b.written++
		}
	}
	v.line("operator", "is told what would become of them: %s", results(b.preview))
	v.line("ledger", "has changed %d of them", b.written)
	return nil
}

func (v *visit) redrive(ctx context.Context, b *stagedBatch) error {
	v.step("The operator redrives them under an Idempotency-Key, and the same request comes once more.")
	key := v.reminder + "-k1"
	started, _, err := v.desk.redrive(ctx, key, b.asked(true))
	if err != nil {
		return err
	}
	v.line("operator", "is answered with redrive %s, of %d items", started.ID, started.Size)
	repeated, laidOut, err := v.desk.redrive(ctx, key, b.asked(true))
	if err != nil {
		return err
	}
	b.same = repeated.ID == started.ID && !laidOut
	v.line("operator", "asks once more, and is answered with redrive %s", repeated.ID)
	for _, r := range []client.Redrive{started, repeated} {
		if b.first, err = v.desk.ends(ctx, r.ID, stagingPatience); err != nil {
			return err
		}
		v.line("operator", "reads the report of %s: %s", r.ID, told(b.first))
		if b.same {
			break
		}
	}
	b.between, err = v.entries(ctx, b)
	return err
}

func (v *visit) redriveAgain(ctx context.Context, b *stagedBatch) error {
	v.step("The operator redrives the same batch once more, and does not ask for the class permanent.")
	started, _, err := v.desk.redrive(ctx, v.reminder+"-k2", b.asked(false))
	if err != nil {
		return err
	}
	if b.second, err = v.desk.ends(ctx, started.ID, stagingPatience); err != nil {
		return err
	}
	v.line("operator", "reads the report: %s", told(b.second))
	if b.after, err = v.entries(ctx, b); err != nil {
		return err
	}
	for _, e := range b.after {
		v.line("entry", "%s: %s (%s), attempts %d, redrives %d", e.ReminderID, e.State, e.Reason, e.Attempts, e.Redrives)
	}
	return nil
}

// tidy takes the dead letters off the lists, so that nobody is alerted for a rehearsal.
func (v *visit) tidy(ctx context.Context, b *stagedBatch) error {
	v.step("The operator discards the rehearsal's dead letters.")
	for _, e := range b.after[:len(b.letters)] {
		if err := v.desk.discard(ctx, e); err != nil {
			v.line("operator", "leaves %s where it is%s", e.ReminderID, because(err))
			continue
		}
		v.line("operator", "discards %s", e.ReminderID)
	}
	return ctx.Err()
}

// entries is the batch as it stands now.
func (v *visit) entries(ctx context.Context, b *stagedBatch) (now []client.Entry, err error) {
	for _, e := range b.batch() {
		story, err := v.desk.story(ctx, e.ReminderID)
		switch {
		case err != nil:
			return nil, err
		case story == nil:
			return nil, fmt.Errorf("rehearse: the ledger has lost %s", e.ReminderID)
		}
		now = append(now, story.Entry)
	}
	return now, nil
}

// judgeStaged judges by what the ledger counts: what the provider got is not seen from here.
func judgeStaged(b stagedBatch) []string {
	var wrong findings
	if n := len(b.letters); n < stagedSize {
		wrong.add("UNSETTLED", "%d of %d reminders to %s died as refused; the rest of the part needs a sandbox", n, stagedSize, refusedRecipient)
		if n == 0 {
			return wrong
		}
	}
	want := func(of client.RedriveItemResult) map[string]client.RedriveItemResult {
		all := map[string]client.RedriveItemResult{}
		for _, e := range b.letters {
			all[e.ID] = of
		}
		if b.sent != nil {
			all[b.sent.ID] = client.RedriveItemResultAlreadySent
		}
		return all
	}
	wrong.preview(b.preview, b.written, 0, want(client.RedriveItemResultReopened))
	wrong.repeat(b.same)
	wrong.report("redrive", b.first, want(client.RedriveItemResultReopened))
	wrong.report("second redrive", b.second, want(client.RedriveItemResultPermanent))
	if again := b.first.Tally.Failed[string(client.ClassPermanent)]; again != len(b.letters) || b.first.Tally.Sent != 0 {
		wrong.add("UNEXPLAINED", "the redrive's report says %d refused again and %d sent, of %d that the provider refuses for good", again, b.first.Tally.Sent, len(b.letters))
	}
	wrong.counts("first", b.batch(), b.between, 1)
	wrong.counts("second", b.between, b.after, 0)
	return wrong
}

// counts holds the attempts of each entry before and after a redrive against each other: a dead letter has so many
// more, and what was sent has none.
func (f *findings) counts(which string, before, after []client.Entry, more int) {
	for i, e := range after {
		rises := e.Attempts - before[i].Attempts
		switch {
		case before[i].State == client.StateSent && (rises != 0 || e.State != client.StateSent):
			f.add("DOUBLED", "the %s redrive touched %s, which was sent: %s, %d attempts more", which, e.ReminderID, e.State, rises)
		case before[i].State == client.StateSent:
		case rises > more:
			f.add("DOUBLED", "the %s redrive called the provider %d times for %s, and %d are right", which, rises, e.ReminderID, more)
		case rises < more:
			f.add("LOST", "the %s redrive called nobody for %s", which, e.ReminderID)
		case e.State != client.StateDead:
			f.add("UNEXPLAINED", "%s was refused, and the ledger says %s (%s)", e.ReminderID, e.State, e.Reason)
		}
	}
}
