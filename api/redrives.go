package api

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// redrive creates a redrive, or previews one.
func (s *server) redrive(w http.ResponseWriter, r *http.Request, caller Caller) {
	request, dryRun, err := s.readRedrive(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	if dryRun {
		report, err := s.Redrive.Preview(r.Context(), request)
		if err != nil {
			s.writeError(w, r, unavailable(err))
			return
		}
		writeJSON(w, http.StatusOK, reportOf(report)) // without the redrive, which does not exist
		return
	}
	created, known, err := s.Redrive.Start(r.Context(), request)
	switch {
	case err != nil:
		s.writeError(w, r, unavailable(err))
	case known:
		writeJSON(w, http.StatusOK, redriveOf(created))
	default:
		w.Header().Set("Location", "/v1/admin/redrives/"+url.PathEscape(created.ID))
		writeJSON(w, http.StatusAccepted, redriveOf(created))
	}
}

// redrives lists redrives, newest first.
func (s *server) redrives(w http.ResponseWriter, r *http.Request, _ Caller) {
	page, err := readPage[struct{}](s.cursors, r.URL.RawQuery, "redrives", nil, nil, func() bool { return true })
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	var after *ledger.RedrivePosition
	if page.after != nil {
		after = &ledger.RedrivePosition{Created: page.after.at, ID: page.after.id}
	}
	redrives, err := s.Redrives.Redrives(r.Context(), after, page.limit+1) // one more than the page, to know whether there is a next one
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.RedriveList{}
	if len(redrives) > page.limit {
		redrives = redrives[:page.limit]
		last := redrives[page.limit-1]
		list.Next = s.cursors.seal(listPosition{last.Created, last.ID}, page.list)
	}
	list.Items = make([]wire.Redrive, len(redrives))
	for i, redrive := range redrives {
		list.Items[i] = redriveOf(redrive)
	}
	writeJSON(w, http.StatusOK, list)
}

// report returns the report of a redrive.
func (s *server) report(w http.ResponseWriter, r *http.Request, _ Caller) {
	id := pathParam(r, "id")
	if !isWord(id) {
		s.writeError(w, r, errNoRedrive)
		return
	}
	report, err := s.RedriveReport.Show(r.Context(), id)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.writeError(w, r, errNoRedrive)
	case err != nil:
		s.writeError(w, r, unavailable(err))
	default:
		document := reportOf(report)
		document.Redrive = redriveOf(report.Redrive)
		writeJSON(w, http.StatusOK, document)
	}
}

// cancelRedrive stops a redrive before its next item.
func (s *server) cancelRedrive(w http.ResponseWriter, r *http.Request, caller Caller) {
	id := pathParam(r, "id")
	if !isWord(id) {
		s.writeError(w, r, errNoRedrive)
		return
	}
	audit, err := readReason(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	stored, err := s.CancelRedrive.Cancel(r.Context(), id, audit)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.writeError(w, r, errNoRedrive)
	case errors.Is(err, ledger.ErrRedriveEnded):
		p := problemOf(err)
		p.Redrive = redriveOf(stored)
		writeProblem(w, p)
	case err != nil:
		s.writeError(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, redriveOf(stored))
	}
}

func redriveOf(r ledger.Redrive) wire.Redrive {
	finished, _ := r.Finished.Fixed()
	request := membersOf(r.Request)
	maps.DeleteFunc(request, func(name string, _ any) bool { return name == "ids" }) // the report lists them as items
	return wire.Redrive{
		ID: r.ID, State: wire.RedriveState(r.State), Actor: r.Actor, Role: r.Role, Reason: r.Reason, Request: request,
		Size: r.Size, Rate: rateOf(r.Interval), Deadline: r.Deadline.UTC(), Permanent: r.Permanent,
		Created: r.Created.UTC(), Updated: r.Updated.UTC(), Finished: finished.UTC(),
	}
}

// rateOf converts the interval between items to items a second, rounded to three decimals so that it reads as it was
// requested.
func rateOf(interval time.Duration) float64 {
	if interval <= 0 {
		return 0
	}
	return math.Round(1000*float64(time.Second)/float64(interval)) / 1000
}

// reportOf returns the items of a redrive with their counts, without the redrive itself.
func reportOf(r ledger.RedriveReport) wire.RedriveReport {
	report := wire.RedriveReport{
		Counts: wire.RedriveCounts{
			Waiting: r.Counts.Waiting, Skipped: counted(r.Counts.Skipped), Sent: r.Counts.Sent, Pending: r.Counts.Pending,
			Unknown: r.Counts.Unknown, Obsolete: r.Counts.Obsolete, Expired: r.Counts.Expired, Dropped: r.Counts.Dropped,
			Failed: counted(r.Counts.Failed),
		},
		Items: make([]wire.RedriveItem, len(r.Items)),
	}
	redriven, skipped := 0, 0
	for i, item := range r.Items {
		report.Items[i] = wire.RedriveItem{
			Entry: item.EntryID(), Result: wire.RedriveItemResult(item.Result), ReparsedAs: item.ReparsedAs,
			State: wire.State(item.Current.State), Class: wire.Class(item.Current.Class), Reason: string(item.Current.Reason),
		}
		switch item.Result {
		case "":
		case ledger.ItemRedriven, ledger.ItemReparsed:
			redriven++
		default:
			skipped++
		}
	}
	report.SentShare = share(r.Counts.Sent, redriven)
	report.DuplicateRate = share(r.Counts.Skipped[ledger.SkipSent], redriven+skipped)
	return report
}

// counted converts counts to the wire type; an empty map, not nil, where nothing was counted.
func counted[K ~string](counts map[K]int) map[string]int {
	all := make(map[string]int, len(counts))
	for word, n := range counts {
		all[string(word)] = n
	}
	return all
}

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
