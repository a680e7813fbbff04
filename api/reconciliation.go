package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// How many cases a page has, each with its evidence.
const (
	casesDefault = 20
	casesMax     = 50
)

// caseList names the list of cases in its cursors.
const caseList = "reconciliation"

// reconciliation lists what may have been sent, the longest in doubt first.
func (s *server) reconciliation(w http.ResponseWriter, r *http.Request, _ Caller) {
	after, limit, err := s.readCases(r.URL.RawQuery)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	cases, err := s.Cases.Waiting(r.Context(), after, limit+1) // one more tells whether there is a next page
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.CaseList{}
	if len(cases) > limit {
		cases = cases[:limit]
		last := cases[limit-1].Entry
		list.Next = s.cursors.seal(place{last.DoubtSince, last.EntryID()}, caseList)
	}
	list.Items = casesOf(cases, s.Now())
	if s.LastRun != nil {
		list.LastRun = runOf(s.LastRun())
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *server) readCases(rawQuery string) (ledger.Doubt, int, error) {
	limit, cursor := casesDefault, ""
	faults := readParams(rawQuery, map[string]func(string) string{"limit": upTo(casesMax, &limit), "cursor": kept(&cursor)})
	var after ledger.Doubt
	if cursor != "" {
		at, ok := s.cursors.open(cursor, caseList)
		id, is := ledger.ParseEntryID(at.id)
		if !ok || !is {
			faults = append(faults, reminder.Fault{Field: "cursor", Problem: notNext})
		}
		after = ledger.Doubt{Since: at.at, Identity: id}
	}
	if len(faults) > 0 {
		return ledger.Doubt{}, 0, faults
	}
	return after, limit, nil
}

// startRun starts a sweep that a person wants now.
func (s *server) startRun(w http.ResponseWriter, r *http.Request, caller Caller) {
	act, err := readAct(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	run, err := s.Start.Start(r.Context(), act)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusAccepted, runOf(run))
}

// resolve carries out a person's decision about one entry.
func (s *server) resolve(w http.ResponseWriter, r *http.Request, caller Caller) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		s.fail(w, r, errNoEntry)
		return
	}
	decision, err := readResolution(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	stands, err := s.Resolve.Resolve(r.Context(), id, decision)
	switch {
	case errors.Is(err, ledger.ErrStale):
		s.clash(w, errStale, stands)
	case errors.Is(err, ledger.ErrNotInDoubt):
		s.clash(w, err, stands)
	case err != nil:
		s.fail(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, entryOf(stands, s.Now()))
	}
}

func readResolution(w http.ResponseWriter, r *http.Request, caller Caller) (ledger.Resolution, error) {
	said, err := readForm(w, r)
	if err != nil {
		return ledger.Resolution{}, err
	}
	verdict := said.text("verdict", true, "one of sent, not_sent, abandoned", func(word string) bool {
		return slices.Contains(ledger.Verdicts(), ledger.Verdict(word))
	})
	receipt := said.text("receipt", false, aWord, isWord)
	if receipt != "" && verdict != "" && verdict != string(ledger.VerdictSent) {
		said.fault("receipt", "goes with the verdict sent alone")
	}
	decision := ledger.Resolution{
		Verdict: ledger.Verdict(verdict), Receipt: receipt, Version: said.version(), Act: actOf(caller, said.why()),
	}
	return decision, said.done()
}

// readAct reads the form of an act that takes nothing but a reason.
func readAct(w http.ResponseWriter, r *http.Request, caller Caller) (ledger.Act, error) {
	said, err := readForm(w, r)
	if err != nil {
		return ledger.Act{}, err
	}
	return actOf(caller, said.why()), said.done()
}

func actOf(caller Caller, why string) ledger.Act {
	return ledger.Act{By: caller.Name, Role: string(caller.Role), Why: why}
}

func casesOf(cases []ledger.Story, now time.Time) []wire.Case {
	items := make([]wire.Case, len(cases))
	for i, c := range cases {
		items[i] = wire.Case{
			Entry: entryOf(c.Entry, now), Asked: c.Entry.Asked, AskAt: c.Entry.AskAt.On(now).UTC(),
			WaitsFor: wire.CaseWaitsForProvider, Evidence: linesOf(c, nil, now),
		}
		if c.Entry.AskAt.IsZero() {
			items[i].WaitsFor = wire.CaseWaitsForPerson
		}
	}
	return items
}

// runOf is a run with its times, which no store has seen, to the microsecond that all others have.
func runOf(r ledger.Run) wire.Run {
	return wire.Run{
		Who: r.By, Started: r.Started.UTC().Truncate(time.Microsecond), Finished: r.Finished.UTC().Truncate(time.Microsecond),
		Unknown: r.Unknown, Asked: r.Asked, Failed: r.Failed,
	}
}
