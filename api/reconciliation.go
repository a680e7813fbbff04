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

// Sizes of a page of unresolved entries, each with its timeline.
const (
	unresolvedDefault = 20
	unresolvedMax     = 50
)

// unresolvedList is the name of this list in its cursors.
const unresolvedList = "reconciliation"

// reconciliation lists the entries that may have been sent, the longest in doubt first.
func (s *server) reconciliation(w http.ResponseWriter, r *http.Request, _ Caller) {
	after, limit, err := s.readUnresolved(r.URL.RawQuery)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	unresolved, err := s.Unresolved.Unresolved(r.Context(), after, limit+1) // one more than the page, to know whether there is a next one
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.UnresolvedList{}
	if len(unresolved) > limit {
		unresolved = unresolved[:limit]
		last := unresolved[limit-1].Entry
		list.Next = s.cursors.seal(listPosition{last.DoubtSince, last.EntryID()}, unresolvedList)
	}
	list.Items = unresolvedOf(unresolved, s.Now())
	if s.LastRun != nil {
		list.LastRun = sweepRunOf(s.LastRun())
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *server) readUnresolved(rawQuery string) (ledger.DoubtPosition, int, error) {
	limit, cursor := unresolvedDefault, ""
	faults := readParams(rawQuery, map[string]func(string) string{"limit": intIn(unresolvedMax, &limit), "cursor": textOf(&cursor)})
	var after ledger.DoubtPosition
	if cursor != "" {
		position, ok := s.cursors.open(cursor, unresolvedList)
		id, valid := ledger.ParseEntryID(position.id)
		if !ok || !valid {
			faults = append(faults, reminder.Fault{Field: "cursor", Problem: notNext})
		}
		after = ledger.DoubtPosition{Since: position.at, Identity: id}
	}
	if len(faults) > 0 {
		return ledger.DoubtPosition{}, 0, faults
	}
	return after, limit, nil
}

// startRun starts a sweep at an operator's request.
func (s *server) startRun(w http.ResponseWriter, r *http.Request, caller Caller) {
	audit, err := readReason(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	run, err := s.StartSweep.StartSweep(r.Context(), audit)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusAccepted, sweepRunOf(run))
}

// resolve applies an operator's resolution to one entry.
func (s *server) resolve(w http.ResponseWriter, r *http.Request, caller Caller) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		s.writeError(w, r, errNoEntry)
		return
	}
	resolution, err := readResolution(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	stored, err := s.Resolve.Resolve(r.Context(), id, resolution)
	switch {
	case errors.Is(err, ledger.ErrStale):
		s.conflict(w, errStale, stored)
	case errors.Is(err, ledger.ErrNotInDoubt):
		s.conflict(w, err, stored)
	case err != nil:
		s.writeError(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, entryOf(stored, s.Now()))
	}
}

func readResolution(w http.ResponseWriter, r *http.Request, caller Caller) (ledger.Resolution, error) {
	body, err := readForm(w, r)
	if err != nil {
		return ledger.Resolution{}, err
	}
	verdict := body.text("verdict", true, "one of sent, not_sent, abandoned", func(word string) bool {
		return slices.Contains(ledger.Verdicts(), ledger.Verdict(word))
	})
	receipt := body.text("receipt", false, wordProblem, isWord)
	if receipt != "" && verdict != "" && verdict != string(ledger.VerdictSent) {
		body.fault("receipt", "is allowed with the verdict sent only")
	}
	resolution := ledger.Resolution{
		Verdict: ledger.Verdict(verdict), Receipt: receipt, Version: body.version(), Audit: auditOf(caller, body.reason()),
	}
	return resolution, body.done()
}

// readReason reads the body of an action that takes nothing but a reason.
func readReason(w http.ResponseWriter, r *http.Request, caller Caller) (ledger.AuditEvent, error) {
	body, err := readForm(w, r)
	if err != nil {
		return ledger.AuditEvent{}, err
	}
	return auditOf(caller, body.reason()), body.done()
}

// auditOf returns the audit event of a caller's action; the store adds the rest.
func auditOf(caller Caller, reason string) ledger.AuditEvent {
	return ledger.AuditEvent{Actor: caller.Name, Role: string(caller.Role), Reason: reason}
}

func unresolvedOf(details []ledger.EntryDetail, now time.Time) []wire.UnresolvedEntry {
	items := make([]wire.UnresolvedEntry, len(details))
	for i, d := range details {
		items[i] = wire.UnresolvedEntry{
			Entry: entryOf(d.Entry, now), LookupsNotFound: d.Entry.LookupsNotFound, NextLookup: d.Entry.NextLookup.On(now).UTC(),
			WaitsFor: wire.UnresolvedEntryWaitsForProvider, Evidence: timelineOf(d, nil, now),
		}
		if d.Entry.NextLookup.IsZero() {
			items[i].WaitsFor = wire.UnresolvedEntryWaitsForOperator
		}
	}
	return items
}

// sweepRunOf truncates the times, which no store has done for a run, to microseconds as all others are.
func sweepRunOf(r ledger.SweepRun) wire.SweepRun {
	return wire.SweepRun{
		Actor: r.Actor, Started: r.Started.UTC().Truncate(time.Microsecond), Finished: r.Finished.UTC().Truncate(time.Microsecond),
		Unknown: r.Unknown, Lookups: r.Lookups, Failed: r.Failed,
	}
}
