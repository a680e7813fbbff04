package rehearsal

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

func TestVariants_OneRedrivePerContract(t *testing.T) {
	s := testSetting()
	for name, onUnknown := range map[string]string{"a": resend, "z": assumeSent} {
		policy := s.Types["default"]
		policy.OnUnknown = onUnknown
		s.Types[name] = policy
	}
	redriven := map[string]int{}
	for _, p := range s.variants("") {
		if p.redriven {
			redriven[p.Contract]++
		}
	}
	if fmt.Sprint(redriven) != "map[blind:1 idempotent:1]" {
		t.Errorf("%v", redriven)
	}
}

func TestFakeProvider_RefusesDeadLettersUntilItAccepts(t *testing.T) {
	for contract, messages := range map[string]int{Idempotent: 1, Lookup: 2, Blind: 2} {
		s, err := newFakeProvider(contract, "rem")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		s.expect("dead")
		if status := called(t, s, "dead", "k", false); status != http.StatusGone {
			t.Errorf("%s: answered %d before it accepts", contract, status)
		}
		s.startAccepting()
		for range 2 {
			if status := called(t, s, "dead", "k", false); status != http.StatusOK {
				t.Errorf("%s: answered %d after it accepts", contract, status)
			}
		}
		if status := called(t, s, "other", "k", false); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: another reminder is answered %d", contract, status)
		}
		letter := deadLetter{calls: s.callsFor("dead")}
		if letter.acceptedCount() != messages || len(letter.calls) != 3 || letter.calls[0].Accepted {
			t.Errorf("%s: %d messages of %+v, want %d", contract, letter.acceptedCount(), letter.calls, messages)
		}
		if calls, _ := s.recorded(); len(calls) != 0 {
			t.Errorf("%s: a dead letter counts as the reminder", contract)
		}
	}
}

// reported is the report of a finished redrive with the same result for each entry.
func reported(result client.RedriveItemResult, entries ...string) client.RedriveReport {
	r := client.RedriveReport{Redrive: client.Redrive{ID: "r", State: client.RedriveStateDone}}
	r.Counts.Skipped, r.Counts.Failed = map[string]int{}, map[string]int{}
	for _, id := range entries {
		r.Items = append(r.Items, client.RedriveItem{Entry: id, Result: result})
	}
	return r
}

// goodBatch is a batch without findings.
func goodBatch() batch {
	b := batch{sameRedrive: true, endedMidway: true}
	for _, id := range []string{"e1", "e2"} {
		b.deadLetters = append(b.deadLetters, deadLetter{
			reminder: "rem-" + id, firstDelivery: delivery{Status: 200, State: "dead"},
			calls:  []call{{Key: id}, {Key: id, Accepted: true, Receipt: "receipt-" + id}},
			detail: &client.EntryDetail{Entry: client.Entry{ID: id, State: client.StateSent, Receipt: "receipt-" + id, Attempts: 2, Redrives: 1}},
		})
	}
	b.preview = reported(client.RedriveItemResultRedriven, "e1", "e2")
	b.first, b.second = reported(client.RedriveItemResultRedriven, "e1", "e2"), reported(client.RedriveItemResultAlreadySent, "e1", "e2")
	b.first.Counts.Sent, b.second.Counts.Skipped["already_sent"] = 2, 2
	return b
}

func TestJudgeBatch_GoodBatchHasNoFindings(t *testing.T) {
	b := goodBatch()
	if wrong := judgeBatch(b); wrong != nil || !strings.Contains(b.summary(), "2 dead letters") {
		t.Errorf("%q, %s", wrong, b.summary())
	}
}

func TestJudgeBatch_FindsEachProblem(t *testing.T) {
	for name, c := range map[string]struct {
		spoil    func(b *batch)
		severity string
	}{
		"not a dead letter":                 {func(b *batch) { b.deadLetters[0].firstDelivery.State = "sent" }, "UNSETTLED: rem-e1 should have become a dead letter"},
		"no delivery":                       {func(b *batch) { b.deadLetters[0].firstDelivery = delivery{} }, "UNSETTLED: rem-e1 should have become a dead letter"},
		"the preview sends":                 {func(b *batch) { b.sent = 1 }, "DOUBLED: the preview called the provider once"},
		"the preview writes":                {func(b *batch) { b.written = 1 }, "UNEXPLAINED: the preview wrote"},
		"another preview result":            {func(b *batch) { b.preview.Items[0].Result = client.RedriveItemResultExpired }, "UNEXPLAINED: the preview has the result \"expired\""},
		"an extra entry in the preview":     {func(b *batch) { b.preview.Items[0].Entry = "e9" }, "UNEXPLAINED: the preview contains an entry that was not requested"},
		"the repeat is another redrive":     {func(b *batch) { b.sameRedrive = false }, "DOUBLED: the same request"},
		"it ended before the kill":          {func(b *batch) { b.endedMidway = false }, "UNSETTLED: the redrive ended"},
		"a dead letter is sent twice":       {func(b *batch) { b.deadLetters[1].calls = append(b.deadLetters[1].calls, b.deadLetters[1].calls[1]) }, "DOUBLED: the recipient got rem-e2 2 times"},
		"a recognised repeat":               {func(b *batch) { b.deadLetters[1].calls = append(b.deadLetters[1].calls, call{Key: "e2", Receipt: "x"}) }, "UNEXPLAINED: the ledger counts 2 calls for rem-e2, and the provider received 3"},
		"another key":                       {func(b *batch) { b.deadLetters[1].calls[1].Key = "k" }, "DOUBLED: the calls for rem-e2 carried 2 keys"},
		"other bytes":                       {func(b *batch) { b.deadLetters[1].calls[1].Body[0] = 1 }, "DOUBLED: the calls for rem-e2 carried 1 keys and 2 bodies"},
		"a dead letter is never sent":       {func(b *batch) { b.deadLetters[0].calls = b.deadLetters[0].calls[:1] }, "LOST: rem-e1 was never accepted"},
		"and the report counts it":          {func(b *batch) { b.deadLetters[0].calls = b.deadLetters[0].calls[:1] }, "UNEXPLAINED: the redrive's report says 2 sent, and the provider accepted 1"},
		"the report lacks a send":           {func(b *batch) { b.first.Counts.Sent = 1 }, "UNEXPLAINED: the redrive's report says 1 sent, and the provider accepted 2"},
		"the report lacks an item":          {func(b *batch) { b.first.Items = b.first.Items[:1] }, "LOST: the redrive lacks 1 of 2"},
		"the report has an item twice":      {func(b *batch) { b.first.Items[1].Entry = "e1" }, "DOUBLED: the redrive contains an entry twice"},
		"it is not done":                    {func(b *batch) { b.first.Redrive.State = client.RedriveStateRunning }, "UNSETTLED: the redrive is not done"},
		"something may have been sent":      {func(b *batch) { b.first.Counts.Unknown = 1 }, "UNSETTLED: of the redrive, 0 items are not processed, 0 are pending and 1 may"},
		"the second redrives again":         {func(b *batch) { b.second.Items[0].Result = client.RedriveItemResultRedriven }, "DOUBLED: the second redrive redrove"},
		"the second skips for another":      {func(b *batch) { b.second.Items[0].Result = client.RedriveItemResultMoved }, "UNEXPLAINED: the second redrive has the result \"moved\""},
		"the second counts another":         {func(b *batch) { b.second.Counts.Skipped = nil }, "UNEXPLAINED: the second redrive's report says 0 already sent, of 2"},
		"the second was never made":         {func(b *batch) { b.second = client.RedriveReport{} }, "LOST: the second redrive lacks 2 of 2"},
		"the second calls the provider":     {func(b *batch) { b.sentAgain = 1 }, "DOUBLED: the second redrive called the provider once"},
		"the ledger has lost it":            {func(b *batch) { b.deadLetters[0].detail = nil }, "LOST: the ledger has no entry for rem-e1"},
		"the ledger says that it is dead":   {func(b *batch) { b.deadLetters[0].detail.Entry.State = client.StateDead }, "LOST: rem-e1 was redriven, and its state is dead"},
		"the ledger says unknown":           {func(b *batch) { b.deadLetters[0].detail.Entry.State = client.StateUnknown }, "UNSETTLED: rem-e1 may have been sent"},
		"the ledger has another receipt":    {func(b *batch) { b.deadLetters[0].detail.Entry.Receipt = "receipt-9" }, "UNEXPLAINED: rem-e1 counts as sent with the receipt"},
		"the ledger counts another attempt": {func(b *batch) { b.deadLetters[0].detail.Entry.Attempts = 3 }, "UNEXPLAINED: the ledger counts 3 calls for rem-e1"},
		"the ledger counts another redrive": {func(b *batch) { b.deadLetters[0].detail.Entry.Redrives = 2 }, "UNEXPLAINED: the ledger counts 2 redrives"},
	} {
		b := goodBatch()
		c.spoil(&b)
		wantFinding(t, name, judgeBatch(b), c.severity)
	}
}

func wantFinding(t *testing.T, name string, wrong []string, severity string) {
	t.Helper()
	if !slices.ContainsFunc(wrong, func(found string) bool { return strings.HasPrefix(found, severity) }) {
		t.Errorf("%s: %q, want %s", name, wrong, severity)
	}
}

// goodStagingBatch is a batch on a running gateway without findings.
func goodStagingBatch() stagingBatch {
	entry := func(id string, state client.State, attempts int) client.Entry {
		return client.Entry{ID: id, ReminderID: "rem-" + id, State: state, Attempts: attempts}
	}
	stored := func(attempts int) []client.Entry {
		return []client.Entry{entry("e1", client.StateDead, attempts), entry("e2", client.StateDead, attempts), entry("s", client.StateSent, 2)}
	}
	sent := entry("s", client.StateSent, 2)
	b := stagingBatch{deadLetters: stored(1)[:2], sent: &sent, sameRedrive: true, between: stored(2), after: stored(2)}
	b.preview, b.first = reported(client.RedriveItemResultRedriven, "e1", "e2", "s"), reported(client.RedriveItemResultRedriven, "e1", "e2", "s")
	b.second = reported(client.RedriveItemResultPermanent, "e1", "e2", "s")
	for _, r := range []client.RedriveReport{b.preview, b.first, b.second} {
		r.Items[2].Result = client.RedriveItemResultAlreadySent
	}
	b.first.Counts.Failed["permanent"] = 2
	return b
}

func TestJudgeStaging(t *testing.T) {
	if wrong := judgeStaging(goodStagingBatch()); wrong != nil {
		t.Errorf("%q", wrong)
	}
	for name, c := range map[string]struct {
		spoil    func(b *stagingBatch)
		severity string
	}{
		"no sandbox":                      {func(b *stagingBatch) { b.deadLetters = nil }, "UNSETTLED: 0 of 2 reminders"},
		"the preview writes":              {func(b *stagingBatch) { b.written = 1 }, "UNEXPLAINED: the preview wrote"},
		"the repeat is another redrive":   {func(b *stagingBatch) { b.sameRedrive = false }, "DOUBLED: the same request"},
		"a sent entry is redriven":        {func(b *stagingBatch) { b.first.Items[2].Result = client.RedriveItemResultRedriven }, "DOUBLED: the redrive redrove"},
		"a sent entry is called again":    {func(b *stagingBatch) { b.between[2].Attempts++ }, "DOUBLED: the first redrive changed rem-s"},
		"a sent entry is called later":    {func(b *stagingBatch) { b.after[2].Attempts++ }, "DOUBLED: the second redrive changed rem-s"},
		"a sent entry is dead":            {func(b *stagingBatch) { b.between[2].State = client.StateDead }, "DOUBLED: the first redrive changed rem-s"},
		"a dead letter is called twice":   {func(b *stagingBatch) { b.between[0].Attempts++ }, "DOUBLED: the first redrive called the provider 2 times for rem-e1"},
		"a dead letter is not called":     {func(b *stagingBatch) { b.between[0].Attempts-- }, "LOST: the first redrive did not call the provider for rem-e1"},
		"a dead letter is called again":   {func(b *stagingBatch) { b.after[0].Attempts++ }, "DOUBLED: the second redrive called the provider"},
		"a refused one is sent":           {func(b *stagingBatch) { b.between[0].State = client.StateSent }, "UNEXPLAINED: rem-e1 was refused"},
		"the report says so":              {func(b *stagingBatch) { b.first.Counts.Sent = 1 }, "UNEXPLAINED: the redrive's report says 2 refused again and 1 sent"},
		"the report says less":            {func(b *stagingBatch) { b.first.Counts.Failed = nil }, "UNEXPLAINED: the redrive's report says 0 refused again"},
		"the class permanent is redriven": {func(b *stagingBatch) { b.second.Items[0].Result = client.RedriveItemResultRedriven }, "DOUBLED: the second redrive redrove"},
		"it is not done":                  {func(b *stagingBatch) { b.second.Redrive.State = client.RedriveStateRunning }, "UNSETTLED: the second redrive is not done"},
	} {
		b := goodStagingBatch()
		c.spoil(&b)
		wantFinding(t, name, judgeStaging(b), c.severity)
	}
	without := goodStagingBatch() // without the entry of the first part
	without.sent, without.between, without.after = nil, without.between[:2], without.after[:2]
	for _, r := range []*client.RedriveReport{&without.preview, &without.first, &without.second} {
		r.Items = r.Items[:2]
	}
	if wrong := judgeStaging(without); wrong != nil {
		t.Errorf("without a sent entry: %q", wrong)
	}
}

func TestCheckOperator_RejectsOtherRoles(t *testing.T) {
	for status, says := range map[int]string{http.StatusForbidden: "give one of role operator, in -token", http.StatusUnauthorized: "401"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/admin/audit" {
				t.Errorf("%s is requested", r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"type": "about:blank", "title": "no", "status": 400, "code": "no"}`))
		}))
		t.Cleanup(server.Close)
		admin, err := newAdminClient(server.URL, "t", directClient(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := admin.checkOperator(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%d: %v", status, err)
		}
	}
}
