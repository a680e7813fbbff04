package api

import (
	"errors"
	"maps"
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// deadLetters lists dead letters, newest first.
func (s *server) deadLetters(w http.ResponseWriter, r *http.Request, _ Caller) {
	query, page, err := s.readEntries(r.URL.RawQuery, "dead-letters", deadLetterFilters())
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	query.State = ledger.Dead
	s.listEntries(w, r, query, page)
}

// deadLetterFilters returns the filters of entries without the state, which is fixed here.
func deadLetterFilters() map[string]func(*ledger.Query, string) string {
	withoutState := maps.Clone(filters)
	delete(withoutState, "state")
	return withoutState
}

// groups lists dead letters grouped by their cause.
func (s *server) groups(w http.ResponseWriter, r *http.Request, _ Caller) {
	limit := pageDefault
	if faults := readParams(r.URL.RawQuery, map[string]func(string) string{"limit": intIn(pageMax, &limit)}); len(faults) > 0 {
		s.writeError(w, r, faults)
		return
	}
	groups, err := s.Groups.DeadLetterGroups(r.Context(), limit)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.DeadLetterGroupList{Items: make([]wire.DeadLetterGroup, len(groups))}
	for i, g := range groups {
		list.Items[i] = wire.DeadLetterGroup{
			Class: wire.Class(g.Class), Provider: g.Provider, Code: g.Code, Type: g.Type, Count: g.Count,
			FirstDead: g.FirstDead.UTC(), LastDead: g.LastDead.UTC(), Sample: g.Sample.EntryID(),
		}
	}
	writeJSON(w, http.StatusOK, list)
}

// deadLetter returns the detail of a dead letter.
func (s *server) deadLetter(w http.ResponseWriter, r *http.Request, caller Caller) {
	detail, err := s.readEntryDetail(r)
	switch {
	case errors.Is(err, errNoEntry), errors.Is(err, ledger.ErrNotFound), err == nil && detail.Entry.State != ledger.Dead:
		s.writeError(w, r, errNoDeadLetter)
	case err != nil:
		s.writeError(w, r, err)
	default:
		writeJSON(w, http.StatusOK, entryDetailOf(detail, caller.Role, s.Now()))
	}
}

// discard drops a dead letter for good.
func (s *server) discard(w http.ResponseWriter, r *http.Request, caller Caller) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		s.writeError(w, r, errNoEntry)
		return
	}
	body, err := readForm(w, r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	audit, version := auditOf(caller, body.reason()), body.version()
	if err := body.done(); err != nil {
		s.writeError(w, r, err)
		return
	}
	stored, err := s.Discard.Discard(r.Context(), id, version, audit)
	switch {
	case errors.Is(err, ledger.ErrStale):
		s.conflict(w, errStale, stored)
	case errors.Is(err, ledger.ErrNotDead):
		s.conflict(w, err, stored)
	case err != nil:
		s.writeError(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, entryOf(stored, s.Now()))
	}
}
