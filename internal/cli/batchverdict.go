package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sendonce/sendonce/api/client"
)

// findings are what went wrong, each with the word that weighs it.
type findings []string

func (f *findings) add(weight, text string, args ...any) {
	*f = append(*f, weight+": "+fmt.Sprintf(text, args...))
}

// judgeBatch says what went wrong with a batch that was redriven twice at a provider that can be looked into.
func judgeBatch(b batch) []string {
	var wrong findings
	n, taken := len(b.letters), 0
	for _, l := range b.letters {
		if l.taken() > 0 {
			taken++
		}
		wrong = append(wrong, l.judge()...)
	}
	wrong.preview(b.preview, b.written, b.sent, b.all(client.RedriveItemResultReopened))
	wrong.repeat(b.same)
	if !b.midway {
		wrong.add("UNSETTLED", "the redrive was over, or nowhere at rest, before the process could be ended in its middle")
	}
	wrong.report("redrive", b.first, b.all(client.RedriveItemResultReopened))
	if sent := b.first.Tally.Sent; sent != taken {
		wrong.add("UNEXPLAINED", "the redrive's report says %d sent, and the provider took %d", sent, taken)
	}
	wrong.report("second redrive", b.second, b.all(client.RedriveItemResultAlreadySent))
	if skipped := b.second.Tally.Skipped[string(client.RedriveItemResultAlreadySent)]; skipped != n {
		wrong.add("UNEXPLAINED", "the second redrive's report says %d already sent, of %d", skipped, n)
	}
	if b.sentAgain > 0 {
		wrong.add("DOUBLED", "the second redrive called the provider %s", times(b.sentAgain))
	}
	return wrong
}

// all expects one result of each.
func (b batch) all(result client.RedriveItemResult) map[string]client.RedriveItemResult {
	want := map[string]client.RedriveItemResult{}
	for _, id := range b.ids() {
		want[id] = result
	}
	return want
}

// judge holds what the provider got for one letter against what the ledger says.
func (l letter) judge() []string {
	var wrong findings
	if l.died.State != string(client.StateDead) || !l.died.acked() {
		wrong.add("UNSETTLED", "%s was to die, and was answered %s", l.reminder, l.died)
	}
	keys, bodies := map[string]bool{}, map[any]bool{}
	for _, c := range l.calls {
		keys[c.Key], bodies[c.Body] = true, true
	}
	switch taken := l.taken(); {
	case taken == 0:
		wrong.add("LOST", "%s was never taken by the provider", l.reminder)
	case taken > 1:
		wrong.add("DOUBLED", "the person got %s %d times", l.reminder, taken)
	}
	if len(keys) > 1 || len(bodies) > 1 {
		wrong.add("DOUBLED", "the calls for %s carried %d keys and %d bodies; they need to be the same", l.reminder, len(keys), len(bodies))
	}
	if l.story == nil {
		wrong.add("LOST", "the ledger holds nothing of %s", l.reminder)
		return wrong
	}
	e := l.story.Entry
	switch h := (history{calls: l.calls}); {
	case e.State == client.StateUnknown:
		wrong.add("UNSETTLED", "%s may have been sent, and waits for a decision (%s)", l.reminder, e.Reason)
	case e.State != client.StateSent:
		wrong.add("LOST", "%s is redriven, and the ledger says %s (%s)", l.reminder, e.State, e.Reason)
	case !h.knows(e.Receipt):
		wrong.add("UNEXPLAINED", "%s counts as sent with the receipt %q, which the provider never gave", l.reminder, e.Receipt)
	}
	if e.Attempts+e.Lapses != len(l.calls) {
		wrong.add("UNEXPLAINED", "the ledger counts %d calls for %s, and the provider got %d", e.Attempts+e.Lapses, l.reminder, len(l.calls))
	}
	if e.Redrives != 1 {
		wrong.add("UNEXPLAINED", "the ledger counts %d redrives of %s, and there was one", e.Redrives, l.reminder)
	}
	return wrong
}

// preview judges what a dry run foresaw, and that it did nothing.
func (f *findings) preview(p client.RedriveReport, written, sent int, want map[string]client.RedriveItemResult) {
	if sent > 0 {
		f.add("DOUBLED", "the preview called the provider %s", times(sent))
	}
	if written > 0 {
		f.add("UNEXPLAINED", "the preview wrote to %d entries", written)
	}
	f.items("preview", p, want)
}

// repeat judges the answer to the same request under the same key.
func (f *findings) repeat(same bool) {
	if !same {
		f.add("DOUBLED", "the same request under the same Idempotency-Key was laid out as another redrive")
	}
}

// report judges a redrive that is to have ended.
func (f *findings) report(name string, r client.RedriveReport, want map[string]client.RedriveItemResult) {
	if r.Redrive.State != client.RedriveStateDone {
		f.add("UNSETTLED", "the %s is not done: %q", name, r.Redrive.State)
	}
	if t := r.Tally; t.Waiting+t.Pending+t.Unknown > 0 {
		f.add("UNSETTLED", "of the %s, %d are without a turn, %d are pending and %d may have been sent", name, t.Waiting, t.Pending, t.Unknown)
	}
	f.items(name, r, want)
}

// items holds the results that a report tells against those that are wanted, by the entries' ids.
func (f *findings) items(name string, r client.RedriveReport, want map[string]client.RedriveItemResult) {
	seen := map[string]int{}
	for _, item := range r.Items {
		seen[item.Entry]++
		switch result, wanted := want[item.Entry]; {
		case !wanted:
			f.add("UNEXPLAINED", "the %s tells of an entry that was not asked for: %s", name, item.Entry)
		case seen[item.Entry] > 1:
			f.add("DOUBLED", "the %s has an entry %s", name, times(seen[item.Entry]))
		case item.Result == result:
		case item.Result == client.RedriveItemResultReopened:
			f.add("DOUBLED", "the %s put to work what it had to skip: %s, for %s", name, item.Result, result)
		default:
			f.add("UNEXPLAINED", "the %s says %q of an entry, and %q is right", name, item.Result, result)
		}
	}
	if missing := len(want) - len(seen); missing > 0 {
		f.add("LOST", "the %s leaves out %d of %d", name, missing, len(want))
	}
}

// results counts what a report says of its items.
func results(r client.RedriveReport) string {
	counts := map[string]int{}
	for _, item := range r.Items {
		counts[string(item.Result)]++
	}
	return counted(counts)
}

// told is a report in one line.
func told(r client.RedriveReport) string {
	counts := map[string]int{}
	t := r.Tally
	for word, n := range map[string]int{"sent": t.Sent, "pending": t.Pending, "unknown": t.Unknown, "without a turn": t.Waiting} {
		counts[word] = n
	}
	for why, n := range t.Skipped {
		counts["skipped as "+why] = n
	}
	for class, n := range t.Failed {
		counts["dead again, "+class] = n
	}
	counts["dropped"] = t.Dropped + t.Expired + t.Obsolete
	return fmt.Sprintf("%s, %s", r.Redrive.State, counted(counts))
}

func counted(counts map[string]int) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		if counts[word] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[word], word))
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// praise is a batch that went well in one sentence.
func (b batch) praise() string {
	return fmt.Sprintf("%d dead letters redriven over a kill -9, each taken once; redriven once more, all skipped as %s, and the report agrees with the provider",
		len(b.letters), client.RedriveItemResultAlreadySent)
}
