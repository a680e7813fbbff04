package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// entries lists entries, newest first.
func (s *server) entries(w http.ResponseWriter, r *http.Request, _ Caller) {
	query, page, err := s.readEntries(r.URL.RawQuery, "entries", filters)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.listEntries(w, r, query, page)
}

func (s *server) listEntries(w http.ResponseWriter, r *http.Request, query ledger.Query, page page) {
	entries, err := s.List.List(r.Context(), query)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.EntryList{}
	if len(entries) > page.limit {
		entries = entries[:page.limit]
		last := entries[page.limit-1]
		list.Next = s.cursors.seal(place{last.FirstSeen, last.EntryID()}, page.list)
	}
	list.Items = entriesOf(entries, s.Now())
	writeJSON(w, http.StatusOK, list)
}

// story tells all that is known of one entry.
func (s *server) story(w http.ResponseWriter, r *http.Request, caller Caller) {
	story, err := s.readStory(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, storyOf(story, caller.Role, s.Now()))
}

func (s *server) readStory(r *http.Request) (ledger.Story, error) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		return ledger.Story{}, errNoEntry
	}
	story, err := s.Story.Story(r.Context(), id)
	if err != nil {
		return ledger.Story{}, unavailable(err)
	}
	return story, nil
}

func storyOf(story ledger.Story, role Role, now time.Time) wire.Story {
	entry, conflicts := entryOf(story.Entry, now), len(story.Conflicts)
	entry.Conflicts = &conflicts
	faults := faultsOf(story)
	return wire.Story{
		Entry: entry, SendKey: story.Entry.SendKey, Faults: faults, Payload: payloadOf(story.Payload, role), PayloadPurged: purged(story),
		Timeline: linesOf(story, faults, now), Conflicts: conflictsOf(story.Conflicts), Acts: actsOf(story.Acts),
	}
}

// faultsOf is what was wrong with a message that nobody could read, as its dead letter keeps it; none once
// it is purged.
func faultsOf(story ledger.Story) []string {
	if story.Entry.Type != ledger.MalformedType || story.Payload == nil {
		return nil
	}
	var kept struct {
		Faults []string `json:"faults"`
	}
	if err := json.Unmarshal(story.Payload.Metadata, &kept); err != nil {
		return nil
	}
	return kept.Faults
}

func linesOf(story ledger.Story, faults []string, now time.Time) []wire.Line {
	lines := make([]wire.Line, len(story.Timeline))
	for i, e := range story.Timeline {
		beside := aside{faults: faults, now: now}
		if i == len(lines)-1 {
			beside.due, beside.ask = story.Entry.Due.On(now), story.Entry.AskAt.On(now)
		}
		lines[i] = lineOf(e, sentence(e, beside))
	}
	return lines
}

func lineOf(e ledger.Event, text string) wire.Line {
	line := wire.Line{
		Version: e.Version, At: e.At.UTC(), Kind: wire.LineKind(e.Kind), Text: text,
		State: wire.State(e.State), Reason: string(e.Reason),
		Origin: string(e.Origin), Source: e.Source, MessageID: e.Message, DeliveryCount: e.Count,
		Number: e.Number, Provider: e.Provider, Started: e.Started.UTC(), Finished: e.Finished.UTC(),
		Receipt: e.Outcome.Receipt, Status: e.Outcome.Status, Code: e.Outcome.Code,
		RequestID: e.Outcome.RequestID, Cause: e.Outcome.Cause, RetryAfterSeconds: wholeSeconds(e.Outcome.RetryAfter),
	}
	switch e.Kind {
	case ledger.EventDecision, ledger.EventLookup, ledger.EventReport:
		if e.Outcome.Result != ledger.ResultNotCalled {
			return line // no claim, so no outcome: its zero value would read as doubt
		}
	}
	line.Outcome = wire.LineOutcome(e.Outcome.Result.String())
	return line
}

func actsOf(acts []ledger.Act) []wire.Act {
	items := make([]wire.Act, len(acts))
	for i, a := range acts {
		items[i] = wire.Act{
			At: a.At.UTC(), Who: a.By, Role: a.Role, What: a.Verb, Why: a.Why,
			Before: membersOf(a.Before), After: membersOf(a.After),
		}
	}
	return items
}

// membersOf is what the audit keeps as JSON; nil where it keeps nothing.
func membersOf(kept string) (members map[string]any) {
	if err := json.Unmarshal([]byte(kept), &members); err != nil {
		return nil
	}
	return members
}

func conflictsOf(conflicts []ledger.Conflict) []wire.Conflict {
	items := make([]wire.Conflict, len(conflicts))
	for i, c := range conflicts {
		items[i] = wire.Conflict{
			ContentHash: c.ContentHash, Source: c.Source, MessageID: c.MessageID, FirstSeen: c.FirstSeen.UTC(),
		}
	}
	return items
}
