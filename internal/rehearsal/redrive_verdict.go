package rehearsal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sendonce/sendonce/api/client"
)

// findings are the problems that were found, each with its severity.
type findings []string

func (f *findings) add(severity, text string, args ...any) {
	*f = append(*f, severity+": "+fmt.Sprintf(text, args...))
}

// judgeBatch returns the problems of a batch that was redriven twice, by the record of the fake provider.
func judgeBatch(b batch) []string {
	var wrong findings
	n, accepted := len(b.deadLetters), 0
	for _, letter := range b.deadLetters {
		if letter.acceptedCount() > 0 {
			accepted++
		}
		wrong = append(wrong, letter.judge()...)
	}
	wrong.preview(b.preview, b.written, b.sent, b.all(client.RedriveItemResultRedriven))
	wrong.repeat(b.sameRedrive)
	if !b.endedMidway {
		wrong.add("UNSETTLED", "the redrive ended, or always had a call in flight, so the process could not be killed in the middle")
	}
	wrong.report("redrive", b.first, b.all(client.RedriveItemResultRedriven))
	if sent := b.first.Counts.Sent; sent != accepted {
		wrong.add("UNEXPLAINED", "the redrive's report says %d sent, and the provider accepted %d", sent, accepted)
	}
	wrong.report("second redrive", b.second, b.all(client.RedriveItemResultAlreadySent))
	if skipped := b.second.Counts.Skipped[string(client.RedriveItemResultAlreadySent)]; skipped != n {
		wrong.add("UNEXPLAINED", "the second redrive's report says %d already sent, of %d", skipped, n)
	}
	if b.sentAgain > 0 {
		wrong.add("DOUBLED", "the second redrive called the provider %s", timesText(b.sentAgain))
	}
	return wrong
}

// all expects the same result for each entry.
func (b batch) all(result client.RedriveItemResult) map[string]client.RedriveItemResult {
	want := map[string]client.RedriveItemResult{}
	for _, id := range b.ids() {
		want[id] = result
	}
	return want
}

// judge compares the record of the provider for one dead letter with the ledger.
func (letter deadLetter) judge() []string {
	var wrong findings
	if letter.firstDelivery.State != string(client.StateDead) || !letter.firstDelivery.acked() {
		wrong.add("UNSETTLED", "%s should have become a dead letter, and the delivery was answered %s", letter.reminder, letter.firstDelivery)
	}
	keys, bodies := map[string]bool{}, map[any]bool{}
	for _, c := range letter.calls {
		keys[c.Key], bodies[c.Body] = true, true
	}
	switch accepted := letter.acceptedCount(); {
	case accepted == 0:
		wrong.add("LOST", "%s was never accepted by the provider", letter.reminder)
	case accepted > 1:
		wrong.add("DOUBLED", "the recipient got %s %d times", letter.reminder, accepted)
	}
	if len(keys) > 1 || len(bodies) > 1 {
		wrong.add("DOUBLED", "the calls for %s carried %d keys and %d bodies; they must be the same", letter.reminder, len(keys), len(bodies))
	}
	if letter.detail == nil {
		wrong.add("LOST", "the ledger has no entry for %s", letter.reminder)
		return wrong
	}
	e := letter.detail.Entry
	switch h := (history{calls: letter.calls}); {
	case e.State == client.StateUnknown:
		wrong.add("UNSETTLED", "%s may have been sent, and waits for a decision (%s)", letter.reminder, e.Reason)
	case e.State != client.StateSent:
		wrong.add("LOST", "%s was redriven, and its state is %s (%s)", letter.reminder, e.State, e.Reason)
	case !h.gaveReceipt(e.Receipt):
		wrong.add("UNEXPLAINED", "%s counts as sent with the receipt %q, which the provider never gave", letter.reminder, e.Receipt)
	}
	if e.Attempts+e.LeaseExpirations != len(letter.calls) {
		wrong.add("UNEXPLAINED", "the ledger counts %d calls for %s, and the provider received %d", e.Attempts+e.LeaseExpirations, letter.reminder, len(letter.calls))
	}
	if e.Redrives != 1 {
		wrong.add("UNEXPLAINED", "the ledger counts %d redrives of %s, and there was one", e.Redrives, letter.reminder)
	}
	return wrong
}

// preview checks the results of a dry run, and that it did nothing.
func (f *findings) preview(p client.RedriveReport, written, sent int, want map[string]client.RedriveItemResult) {
	if sent > 0 {
		f.add("DOUBLED", "the preview called the provider %s", timesText(sent))
	}
	if written > 0 {
		f.add("UNEXPLAINED", "the preview wrote to %d entries", written)
	}
	f.items("preview", p, want)
}

// repeat checks the answer to the same request with the same key.
func (f *findings) repeat(sameRedrive bool) {
	if !sameRedrive {
		f.add("DOUBLED", "the same request with the same Idempotency-Key created another redrive")
	}
}

// report checks a redrive that should have ended.
func (f *findings) report(name string, r client.RedriveReport, want map[string]client.RedriveItemResult) {
	if r.Redrive.State != client.RedriveStateDone {
		f.add("UNSETTLED", "the %s is not done: %q", name, r.Redrive.State)
	}
	if t := r.Counts; t.Waiting+t.Pending+t.Unknown > 0 {
		f.add("UNSETTLED", "of the %s, %d items are not processed, %d are pending and %d may have been sent", name, t.Waiting, t.Pending, t.Unknown)
	}
	f.items(name, r, want)
}

// items compares the results in a report with the expected ones, by the ids of the entries.
func (f *findings) items(name string, r client.RedriveReport, want map[string]client.RedriveItemResult) {
	seen := map[string]int{}
	for _, item := range r.Items {
		seen[item.Entry]++
		switch result, wanted := want[item.Entry]; {
		case !wanted:
			f.add("UNEXPLAINED", "the %s contains an entry that was not requested: %s", name, item.Entry)
		case seen[item.Entry] > 1:
			f.add("DOUBLED", "the %s contains an entry %s", name, timesText(seen[item.Entry]))
		case item.Result == result:
		case item.Result == client.RedriveItemResultRedriven:
			f.add("DOUBLED", "the %s redrove an entry that it had to skip: %s instead of %s", name, item.Result, result)
		default:
			f.add("UNEXPLAINED", "the %s has the result %q for an entry, want %q", name, item.Result, result)
		}
	}
	if missing := len(want) - len(seen); missing > 0 {
		f.add("LOST", "the %s lacks %d of %d entries", name, missing, len(want))
	}
}

// resultCounts is the number of items of a report by result, as text.
func resultCounts(r client.RedriveReport) string {
	counts := map[string]int{}
	for _, item := range r.Items {
		counts[string(item.Result)]++
	}
	return countsText(counts)
}

// reportLine is a report in one line.
func reportLine(r client.RedriveReport) string {
	counts := map[string]int{}
	t := r.Counts
	for word, n := range map[string]int{"sent": t.Sent, "pending": t.Pending, "unknown": t.Unknown, "not processed": t.Waiting} {
		counts[word] = n
	}
	for reason, n := range t.Skipped {
		counts["skipped as "+reason] = n
	}
	for class, n := range t.Failed {
		counts["dead again, "+class] = n
	}
	counts["dropped"] = t.Dropped + t.Expired + t.Obsolete
	return fmt.Sprintf("%s, %s", r.Redrive.State, countsText(counts))
}

// countsText lists the counts that are not zero.
func countsText(counts map[string]int) string {
	var words []string
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		if counts[word] > 0 {
			words = append(words, fmt.Sprintf("%d %s", counts[word], word))
		}
	}
	if words == nil {
		return "none"
	}
	return strings.Join(words, ", ")
}

// summary describes a batch without findings in one sentence.
func (b batch) summary() string {
	return fmt.Sprintf("%d dead letters redriven over a kill -9, each accepted once; redriven once more, all skipped as %s, and the report agrees with the provider",
		len(b.deadLetters), client.RedriveItemResultAlreadySent)
}
