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
	query, page, err := s.readEntries(r.URL.RawQuery, "dead-letters", letterFilters())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	query.State = ledger.Dead
	s.listEntries(w, r, query, page)
}

// letterFilters are the filters of a list whose state is given.
func letterFilters() map[string]func(*ledger.Query, string) string {
	narrowing := maps.Clone(filters)
	delete(narrowing, "state")
	return narrowing
}

// groups groups dead letters by what they died of.
func (s *server) groups(w http.ResponseWriter, r *http.Request, _ Caller) {
	limit := pageDefault
	if faults := readParams(r.URL.RawQuery, map[string]func(string) string{"limit": upTo(pageMax, &limit)}); len(faults) > 0 {
		s.fail(w, r, faults)
		return
	}
	groups, err := s.Groups.Groups(r.Context(), limit)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.GroupList{Items: make([]wire.Group, len(groups))}
	for i, g := range groups {
		list.Items[i] = wire.Group{
			Class: wire.Class(g.Class), Provider: g.Provider, Code: g.Code, Type: g.Type, Count: g.Count,
			FirstDied: g.FirstDied.UTC(), LastDied: g.LastDied.UTC(), Sample: g.Sample.EntryID(),
		}
	}
	writeJSON(w, http.StatusOK, list)
}

// deadLetter tells the story of a dead letter.
func (s *server) deadLetter(w http.ResponseWriter, r *http.Request, caller Caller) {
	story, err := s.readStory(r)
	switch {
	case errors.Is(err, errNoEntry), errors.Is(err, ledger.ErrNotFound), err == nil && story.Entry.State != ledger.Dead:
		s.fail(w, r, errNoLetter)
	case err != nil:
		s.fail(w, r, err)
	default:
		writeJSON(w, http.StatusOK, storyOf(story, caller.Role, s.Now()))
	}
}

// discard takes a dead letter off the lists.
func (s *server) discard(w http.ResponseWriter, r *http.Request, caller Caller) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		s.fail(w, r, errNoEntry)
		return
	}
	said, err := readForm(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	act, version := actOf(caller, said.why()), said.version()
	if err := said.done(); err != nil {
		s.fail(w, r, err)
		return
	}
	stands, err := s.Discard.Discard(r.Context(), id, version, act)
	switch {
	case errors.Is(err, ledger.ErrStale):
		s.clash(w, errStale, stands)
	case errors.Is(err, ledger.ErrNotDead):
		s.clash(w, err, stands)
	case err != nil:
		s.fail(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, entryOf(stands, s.Now()))
	}
}
