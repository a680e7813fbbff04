package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

func TestEachContractsBatchIsRedrivenOnce(t *testing.T) {
	s := usual()
	for name, onUnknown := range map[string]string{"a": resend, "z": assumeSent} {
		policy := s.Types["default"]
		policy.OnUnknown = onUnknown
		s.Types[name] = policy
	}
	redriven := map[string]int{}
	for _, p := range s.passages("") {
		if p.redriven {
			redriven[p.Contract]++
		}
	}
	if fmt.Sprint(redriven) != "map[blind:1 idempotent:1]" {
		t.Errorf("%v", redriven)
	}
}

func TestTheStandInRefusesItsLettersUntilItIsMended(t *testing.T) {
	for contract, messages := range map[string]int{Idempotent: 1, Lookup: 2, Blind: 2} {
		s, err := openStage(contract, "rem")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		s.expect("dead")
		if status := called(t, s, "dead", "k", false); status != http.StatusGone {
			t.Errorf("%s: answered %d before it is mended", contract, status)
		}
		s.mend()
		for range 2 {
			if status := called(t, s, "dead", "k", false); status != http.StatusOK {
				t.Errorf("%s: answered %d after it is mended", contract, status)
			}
		}
		if status := called(t, s, "other", "k", false); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: another reminder is answered %d", contract, status)
		}
		l := letter{calls: s.got("dead")}
		if l.taken() != messages || len(l.calls) != 3 || l.calls[0].Taken {
			t.Errorf("%s: %d messages of %+v, want %d", contract, l.taken(), l.calls, messages)
		}
		if calls, _ := s.record(); len(calls) != 0 {
			t.Errorf("%s: a letter counts as the reminder", contract)
		}
	}
}

// reported is a redrive that is done, with one result for each entry.
func reported(result client.RedriveItemResult, entries ...string) client.RedriveReport {
	r := client.RedriveReport{Redrive: client.Redrive{ID: "r", State: client.RedriveStateDone}}
	r.Tally.Skipped, r.Tally.Failed = map[string]int{}, map[string]int{}
	for _, id := range entries {
		r.Items = append(r.Items, client.RedriveItem{Entry: id, Result: result})
	}
	return r
}

// rightBatch is one in which all went well.
func rightBatch() batch {
	b := batch{same: true, midway: true}
	for _, id := range []string{"e1", "e2"} {
		b.letters = append(b.letters, letter{
			reminder: "rem-" + id, died: delivery{Status: 200, State: "dead"},
			calls: []call{{Key: id}, {Key: id, Taken: true, Receipt: "receipt-" + id}},
			story: &client.Story{Entry: client.Entry{ID: id, State: client.StateSent, Receipt: "receipt-" + id, Attempts: 2, Redrives: 1}},
		})
	}
	b.preview = reported(client.RedriveItemResultReopened, "e1", "e2")
	b.first, b.second = reported(client.RedriveItemResultReopened, "e1", "e2"), reported(client.RedriveItemResultAlreadySent, "e1", "e2")
	b.first.Tally.Sent, b.second.Tally.Skipped["already_sent"] = 2, 2
	return b
}

func TestABatchThatWentWellIsPraised(t *testing.T) {
	b := rightBatch()
	if wrong := judgeBatch(b); wrong != nil || !strings.Contains(b.praise(), "2 dead letters") {
		t.Errorf("%q, %s", wrong, b.praise())
	}
}

func TestWhatWentWrongWithABatchIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(b *batch)
		weight string
	}{
		"it did not die":                    {func(b *batch) { b.letters[0].died.State = "sent" }, "UNSETTLED: rem-e1 was to die"},
		"nobody died":                       {func(b *batch) { b.letters[0].died = delivery{} }, "UNSETTLED: rem-e1 was to die"},
		"the preview sends":                 {func(b *batch) { b.sent = 1 }, "DOUBLED: the preview called the provider once"},
		"the preview writes":                {func(b *batch) { b.written = 1 }, "UNEXPLAINED: the preview wrote"},
		"the preview foresees another":      {func(b *batch) { b.preview.Items[0].Result = client.RedriveItemResultExpired }, "UNEXPLAINED: the preview says \"expired\""},
		"the preview tells of a stranger":   {func(b *batch) { b.preview.Items[0].Entry = "e9" }, "UNEXPLAINED: the preview tells of an entry that was not asked for"},
		"the repeat is another redrive":     {func(b *batch) { b.same = false }, "DOUBLED: the same request"},
		"it was over before the kill":       {func(b *batch) { b.midway = false }, "UNSETTLED: the redrive was over"},
		"a letter is sent twice":            {func(b *batch) { b.letters[1].calls = append(b.letters[1].calls, b.letters[1].calls[1]) }, "DOUBLED: the person got rem-e2 2 times"},
		"and recognised":                    {func(b *batch) { b.letters[1].calls = append(b.letters[1].calls, call{Key: "e2", Receipt: "x"}) }, "UNEXPLAINED: the ledger counts 2 calls for rem-e2, and the provider got 3"},
		"under another key":                 {func(b *batch) { b.letters[1].calls[1].Key = "k" }, "DOUBLED: the calls for rem-e2 carried 2 keys"},
		"with other bytes":                  {func(b *batch) { b.letters[1].calls[1].Body[0] = 1 }, "DOUBLED: the calls for rem-e2 carried 1 keys and 2 bodies"},
		"a letter is never sent":            {func(b *batch) { b.letters[0].calls = b.letters[0].calls[:1] }, "LOST: rem-e1 was never taken"},
		"and the report says it was":        {func(b *batch) { b.letters[0].calls = b.letters[0].calls[:1] }, "UNEXPLAINED: the redrive's report says 2 sent, and the provider took 1"},
		"the report leaves out a send":      {func(b *batch) { b.first.Tally.Sent = 1 }, "UNEXPLAINED: the redrive's report says 1 sent, and the provider took 2"},
		"the report leaves out an item":     {func(b *batch) { b.first.Items = b.first.Items[:1] }, "LOST: the redrive leaves out 1 of 2"},
		"the report has an item twice":      {func(b *batch) { b.first.Items[1].Entry = "e1" }, "DOUBLED: the redrive has an entry twice"},
		"it is not done":                    {func(b *batch) { b.first.Redrive.State = client.RedriveStateRunning }, "UNSETTLED: the redrive is not done"},
		"something may have been sent":      {func(b *batch) { b.first.Tally.Unknown = 1 }, "UNSETTLED: of the redrive, 0 are without a turn, 0 are pending and 1 may"},
		"the second puts to work":           {func(b *batch) { b.second.Items[0].Result = client.RedriveItemResultReopened }, "DOUBLED: the second redrive put to work"},
		"the second skips for another":      {func(b *batch) { b.second.Items[0].Result = client.RedriveItemResultMoved }, "UNEXPLAINED: the second redrive says \"moved\""},
		"the second counts another":         {func(b *batch) { b.second.Tally.Skipped = nil }, "UNEXPLAINED: the second redrive's report says 0 already sent, of 2"},
		"the second was never made":         {func(b *batch) { b.second = client.RedriveReport{} }, "LOST: the second redrive leaves out 2 of 2"},
		"the second calls the provider":     {func(b *batch) { b.sentAgain = 1 }, "DOUBLED: the second redrive called the provider once"},
		"the ledger has lost it":            {func(b *batch) { b.letters[0].story = nil }, "LOST: the ledger holds nothing of rem-e1"},
		"the ledger says that it is dead":   {func(b *batch) { b.letters[0].story.Entry.State = client.StateDead }, "LOST: rem-e1 is redriven, and the ledger says dead"},
		"the ledger does not know":          {func(b *batch) { b.letters[0].story.Entry.State = client.StateUnknown }, "UNSETTLED: rem-e1 may have been sent"},
		"the ledger has another receipt":    {func(b *batch) { b.letters[0].story.Entry.Receipt = "receipt-9" }, "UNEXPLAINED: rem-e1 counts as sent with the receipt"},
		"the ledger counts another attempt": {func(b *batch) { b.letters[0].story.Entry.Attempts = 3 }, "UNEXPLAINED: the ledger counts 3 calls for rem-e1"},
		"the ledger counts another redrive": {func(b *batch) { b.letters[0].story.Entry.Redrives = 2 }, "UNEXPLAINED: the ledger counts 2 redrives"},
	} {
		b := rightBatch()
		c.spoil(&b)
		finds(t, name, judgeBatch(b), c.weight)
	}
}

func finds(t *testing.T, name string, wrong []string, weight string) {
	t.Helper()
	if !slices.ContainsFunc(wrong, func(found string) bool { return strings.HasPrefix(found, weight) }) {
		t.Errorf("%s: %q, want %s", name, wrong, weight)
	}
}

// rightStaged is a running gateway's batch in which all went well.
func rightStaged() stagedBatch {
	entry := func(id string, state client.State, attempts int) client.Entry {
		return client.Entry{ID: id, ReminderID: "rem-" + id, State: state, Attempts: attempts}
	}
	stands := func(attempts int) []client.Entry {
		return []client.Entry{entry("e1", client.StateDead, attempts), entry("e2", client.StateDead, attempts), entry("s", client.StateSent, 2)}
	}
	sent := entry("s", client.StateSent, 2)
	b := stagedBatch{letters: stands(1)[:2], sent: &sent, same: true, between: stands(2), after: stands(2)}
	b.preview, b.first = reported(client.RedriveItemResultReopened, "e1", "e2", "s"), reported(client.RedriveItemResultReopened, "e1", "e2", "s")
	b.second = reported(client.RedriveItemResultPermanent, "e1", "e2", "s")
	for _, r := range []client.RedriveReport{b.preview, b.first, b.second} {
		r.Items[2].Result = client.RedriveItemResultAlreadySent
	}
	b.first.Tally.Failed["permanent"] = 2
	return b
}

func TestARunningGatewaysBatchIsJudgedByWhatItCounts(t *testing.T) {
	if wrong := judgeStaged(rightStaged()); wrong != nil {
		t.Errorf("%q", wrong)
	}
	for name, c := range map[string]struct {
		spoil  func(b *stagedBatch)
		weight string
	}{
		"no sandbox":                       {func(b *stagedBatch) { b.letters = nil }, "UNSETTLED: 0 of 2 reminders"},
		"the preview writes":               {func(b *stagedBatch) { b.written = 1 }, "UNEXPLAINED: the preview wrote"},
		"the repeat is another redrive":    {func(b *stagedBatch) { b.same = false }, "DOUBLED: the same request"},
		"what was sent is put to work":     {func(b *stagedBatch) { b.first.Items[2].Result = client.RedriveItemResultReopened }, "DOUBLED: the redrive put to work"},
		"what was sent is called again":    {func(b *stagedBatch) { b.between[2].Attempts++ }, "DOUBLED: the first redrive touched rem-s"},
		"what was sent is called later":    {func(b *stagedBatch) { b.after[2].Attempts++ }, "DOUBLED: the second redrive touched rem-s"},
		"what was sent is dead":            {func(b *stagedBatch) { b.between[2].State = client.StateDead }, "DOUBLED: the first redrive touched rem-s"},
		"a letter is called twice":         {func(b *stagedBatch) { b.between[0].Attempts++ }, "DOUBLED: the first redrive called the provider 2 times for rem-e1"},
		"a letter is not called":           {func(b *stagedBatch) { b.between[0].Attempts-- }, "LOST: the first redrive called nobody for rem-e1"},
		"a letter is called for nothing":   {func(b *stagedBatch) { b.after[0].Attempts++ }, "DOUBLED: the second redrive called the provider"},
		"the refused counts as sent":       {func(b *stagedBatch) { b.between[0].State = client.StateSent }, "UNEXPLAINED: rem-e1 was refused"},
		"the report says so":               {func(b *stagedBatch) { b.first.Tally.Sent = 1 }, "UNEXPLAINED: the redrive's report says 2 refused again and 1 sent"},
		"the report says less":             {func(b *stagedBatch) { b.first.Tally.Failed = nil }, "UNEXPLAINED: the redrive's report says 0 refused again"},
		"the class permanent is put again": {func(b *stagedBatch) { b.second.Items[0].Result = client.RedriveItemResultReopened }, "DOUBLED: the second redrive put to work"},
		"it is not done":                   {func(b *stagedBatch) { b.second.Redrive.State = client.RedriveStateRunning }, "UNSETTLED: the second redrive is not done"},
	} {
		b := rightStaged()
		c.spoil(&b)
		finds(t, name, judgeStaged(b), c.weight)
	}
	without := rightStaged() // what the first part sent, since it sent nothing
	without.sent, without.between, without.after = nil, without.between[:2], without.after[:2]
	for _, r := range []*client.RedriveReport{&without.preview, &without.first, &without.second} {
		r.Items = r.Items[:2]
	}
	if wrong := judgeStaged(without); wrong != nil {
		t.Errorf("nothing was sent before: %q", wrong)
	}
}

func TestATokenThatMayNotRedriveIsToldAtOnce(t *testing.T) {
	for status, says := range map[int]string{http.StatusForbidden: "give one of role operator, in -token", http.StatusUnauthorized: "401"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/admin/audit" {
				t.Errorf("%s is asked for", r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"type": "about:blank", "title": "no", "status": 400, "code": "no"}`))
		}))
		t.Cleanup(server.Close)
		asks, err := openDesk(server.URL, "t", direct(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := asks.operates(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", status, err)
		}
	}
}
