package api

import (
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// entries lists entries, newest first.
func (s *server) entries(w http.ResponseWriter, r *http.Request, _ Caller) {
	page, err := s.readPage(r.URL.RawQuery)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	limit := page.query.Limit
	page.query.Limit++ // one more tells whether there is a next page
	entries, err := s.List.List(r.Context(), page.query)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.EntryList{}
	if len(entries) > limit {
		entries = entries[:limit]
		last := entries[limit-1]
		list.Next = s.cursors.seal(ledger.Position{FirstSeen: last.FirstSeen, Identity: last.Identity}, page.filters)
	}
	list.Items = entriesOf(entries, s.Now())
	writeJSON(w, http.StatusOK, list)
}

// story tells all that is known of one entry.
func (s *server) story(w http.ResponseWriter, r *http.Request, _ Caller) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		s.fail(w, r, errNotFound)
		return
	}
	story, err := s.Story.Story(r.Context(), id)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	entry, conflicts := entryOf(story.Entry, s.Now()), len(story.Conflicts)
	entry.Conflicts = &conflicts
	writeJSON(w, http.StatusOK, wire.Story{
		Entry: entry, Timeline: linesOf(story.Timeline), Conflicts: conflictsOf(story.Conflicts),
	})
}

func linesOf(events []ledger.Event) []wire.Line {
	lines := make([]wire.Line, len(events))
	for i, e := range events {
		lines[i] = lineOf(e)
	}
	return lines
}

func lineOf(e ledger.Event) wire.Line {
	line := wire.Line{
		Version: e.Version, At: e.At.UTC(), Kind: wire.LineKind(e.Kind), Text: sentence(e),
		State: wire.State(e.State), Reason: string(e.Reason),
		Origin: string(e.Origin), Source: e.Source, MessageID: e.Message, DeliveryCount: e.Count,
		Number: e.Number, Provider: e.Provider, Started: e.Started.UTC(), Finished: e.Finished.UTC(),
	}
	if e.Kind == ledger.EventDecision {
		return line // no call, so no outcome: its zero value would read as doubt
	}
	line.Outcome = wire.LineOutcome(e.Outcome.Result.String())
	line.Receipt, line.Status, line.Code = e.Outcome.Receipt, e.Outcome.Status, e.Outcome.Code
	line.RequestID, line.Cause = e.Outcome.RequestID, e.Outcome.Cause
	line.RetryAfterSeconds = wholeSeconds(e.Outcome.RetryAfter)
	return line
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
