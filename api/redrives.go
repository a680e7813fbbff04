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

// redrive puts dead letters to work again, or tells what that would come to.
func (s *server) redrive(w http.ResponseWriter, r *http.Request, caller Caller) {
	ask, dry, err := s.readRedrive(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if dry {
		report, err := s.Redrive.Preview(r.Context(), ask)
		if err != nil {
			s.fail(w, r, unavailable(err))
			return
		}
		writeJSON(w, http.StatusOK, reportOf(report)) // without a redrive: there is none
		return
	}
	laid, known, err := s.Redrive.Start(r.Context(), ask)
	switch {
	case err != nil:
		s.fail(w, r, unavailable(err))
	case known:
		writeJSON(w, http.StatusOK, redriveOf(laid))
	default:
		w.Header().Set("Location", "/v1/admin/redrives/"+url.PathEscape(laid.ID))
		writeJSON(w, http.StatusAccepted, redriveOf(laid))
	}
}

// redrives lists redrives, newest first.
func (s *server) redrives(w http.ResponseWriter, r *http.Request, _ Caller) {
	page, err := readPage[struct{}](s.cursors, r.URL.RawQuery, "redrives", nil, nil, func() bool { return true })
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var after *ledger.RedrivePlace
	if page.after != nil {
		after = &ledger.RedrivePlace{Created: page.after.at, ID: page.after.id}
	}
	redrives, err := s.Redrives.Redrives(r.Context(), after, page.limit+1) // one more tells whether there is a next page
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.RedriveList{}
	if len(redrives) > page.limit {
		redrives = redrives[:page.limit]
		last := redrives[page.limit-1]
		list.Next = s.cursors.seal(place{last.Created, last.ID}, page.list)
	}
	list.Items = make([]wire.Redrive, len(redrives))
	for i, one := range redrives {
		list.Items[i] = redriveOf(one)
	}
	writeJSON(w, http.StatusOK, list)
}

// report tells how a redrive goes.
func (s *server) report(w http.ResponseWriter, r *http.Request, _ Caller) {
	id := pathParam(r, "id")
	if !isWord(id) {
		s.fail(w, r, errNoRedrive)
		return
	}
	report, err := s.Report.Show(r.Context(), id)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.fail(w, r, errNoRedrive)
	case err != nil:
		s.fail(w, r, unavailable(err))
	default:
		told := reportOf(report)
		told.Redrive = redriveOf(report.Redrive)
		writeJSON(w, http.StatusOK, told)
	}
}

// stop stops a redrive before its next item.
func (s *server) stop(w http.ResponseWriter, r *http.Request, caller Caller) {
	id := pathParam(r, "id")
	if !isWord(id) {
		s.fail(w, r, errNoRedrive)
		return
	}
	act, err := readAct(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	stands, err := s.Stop.Cancel(r.Context(), id, act)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.fail(w, r, errNoRedrive)
	case errors.Is(err, ledger.ErrRedriveEnded):
		p := problemOf(err)
		p.Redrive = redriveOf(stands)
		writeProblem(w, p)
	case err != nil:
		s.fail(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, redriveOf(stands))
	}
}

func redriveOf(r ledger.Redrive) wire.Redrive {
	finished, _ := r.Finished.Fixed()
	asked := membersOf(r.Asked)
	maps.DeleteFunc(asked, func(name string, _ any) bool { return name == "ids" }) // they are told as items
	return wire.Redrive{
		ID: r.ID, State: wire.RedriveState(r.State), Who: r.By, Role: r.Role, Why: r.Why, Asked: asked,
		Size: r.Size, Rate: rateOf(r.Pace), Deadline: r.Deadline.UTC(), Permanent: r.Permanent,
		Created: r.Created.UTC(), Updated: r.Updated.UTC(), Finished: finished.UTC(),
	}
}

// rateOf is a pace in items a second, rounded to what people ask for.
func rateOf(pace time.Duration) float64 {
	if pace <= 0 {
		return 0
	}
	return math.Round(1000*float64(time.Second)/float64(pace)) / 1000
}

// reportOf is how the items of a redrive stand, without the redrive itself.
func reportOf(r ledger.RedriveReport) wire.RedriveReport {
	report := wire.RedriveReport{
		Tally: wire.RedriveTally{
			Waiting: r.Tally.Waiting, Skipped: counted(r.Tally.Skipped), Sent: r.Tally.Sent, Pending: r.Tally.Pending,
			Unknown: r.Tally.Unknown, Obsolete: r.Tally.Obsolete, Expired: r.Tally.Expired, Dropped: r.Tally.Dropped,
			Failed: counted(r.Tally.Failed),
		},
		Items: make([]wire.RedriveItem, len(r.Items)),
	}
	worked, skipped := 0, 0
	for i, item := range r.Items {
		report.Items[i] = wire.RedriveItem{
			Entry: item.EntryID(), Result: wire.RedriveItemResult(item.Result), Became: item.Became,
			State: wire.State(item.Standing.State), Class: wire.Class(item.Standing.Class), Reason: string(item.Standing.Reason),
		}
		switch item.Result {
		case "":
		case ledger.ItemReopened, ledger.ItemReread:
			worked++
		default:
			skipped++
		}
	}
	report.SentShare = share(r.Tally.Sent, worked)
	report.DuplicateRate = share(r.Tally.Skipped[ledger.SkipSent], worked+skipped)
	return report
}

// counted are counts by words; an empty map where nothing was counted.
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
