package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// auditFilters read one parameter each into a query of the audit.
var auditFilters = map[string]func(q *ledger.AuditQuery, value string) (problem string){
	"by":   word(func(q *ledger.AuditQuery) *string { return &q.By }),
	"verb": word(func(q *ledger.AuditQuery) *string { return &q.Verb }),
	"from": instant(func(q *ledger.AuditQuery) *time.Time { return &q.From }),
	"to":   instant(func(q *ledger.AuditQuery) *time.Time { return &q.To }),
}

// audit lists what people did, newest first.
func (s *server) audit(w http.ResponseWriter, r *http.Request, _ Caller) {
	var query ledger.AuditQuery
	inOrder := func() bool { return ordered(query.From, query.To) }
	page, err := readPage(s.cursors, r.URL.RawQuery, "audit", &query, auditFilters, inOrder)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	query.Limit = page.limit + 1 // one more tells whether there is a next page
	if page.after != nil {
		query.After = &ledger.ActPlace{At: page.after.at, ID: page.after.id}
	}
	acts, err := s.Audit.Audit(r.Context(), query)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.AuditList{}
	if len(acts) > page.limit {
		acts = acts[:page.limit]
		last := acts[page.limit-1]
		list.Next = s.cursors.seal(place{last.At, last.ID}, page.list)
	}
	list.Items = make([]wire.AuditLine, len(acts))
	for i, act := range acts {
		list.Items[i] = auditLineOf(act)
	}
	writeJSON(w, http.StatusOK, list)
}

func auditLineOf(a ledger.Act) wire.AuditLine {
	line := wire.AuditLine{
		At: a.At.UTC(), ID: a.ID, Who: a.By, Role: a.Role, What: a.Verb, Why: a.Why,
		Before: membersOf(a.Before), After: membersOf(a.After),
	}
	if a.Identity != (ledger.Identity{}) {
		line.Entry = a.EntryID()
	}
	return line
}

// providers tells how every provider stands.
func (s *server) providers(w http.ResponseWriter, r *http.Request, _ Caller) {
	if faults := readParams(r.URL.RawQuery, nil); len(faults) > 0 {
		s.fail(w, r, faults)
		return
	}
	views, err := s.Providers.Providers(r.Context())
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	list := wire.ProviderList{Items: make([]wire.Provider, len(views))}
	for i, v := range views {
		list.Items[i] = wire.Provider{
			Name: v.Name, Contract: contractOf(v.Contract), Gate: gateOf(v.Gate, v.Open),
			Capacity: v.Capacity, InFlight: v.InFlight, Rate: v.Rate, Ready: v.Ready,
		}
	}
	writeJSON(w, http.StatusOK, list)
}

func contractOf(c ledger.Contract) wire.Contract {
	contract := wire.Contract{Kind: wire.ContractKind(c.Kind.String())}
	if c.Window > 0 {
		contract.Window = c.Window.String()
	}
	return contract
}

func gateOf(g ledger.Gate, open bool) wire.ProviderGate {
	until, _ := g.ClosedUntil.Fixed()
	return wire.ProviderGate{Paused: g.Paused, Open: open, ClosedUntil: until.UTC(), Class: wire.Class(g.Class), By: g.By}
}

// pause stops all calls to a provider.
func (s *server) pause(w http.ResponseWriter, r *http.Request, caller Caller) {
	s.steer(w, r, caller, Steerer.Pause)
}

// resume lets calls to a provider go on.
func (s *server) resume(w http.ResponseWriter, r *http.Request, caller Caller) {
	s.steer(w, r, caller, Steerer.Resume)
}

func (s *server) steer(
	w http.ResponseWriter, r *http.Request, caller Caller,
	by func(Steerer, context.Context, string, ledger.Act) (ledger.Gate, error),
) {
	act, err := readAct(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	gate, err := by(s.Steer, r.Context(), pathParam(r, "name"), act)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.fail(w, r, errNoProvider)
	case err != nil:
		s.fail(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, gateOf(gate, gate.View(s.Now()).Open))
	}
}

// erase takes what is known of a person out of the ledger.
func (s *server) erase(w http.ResponseWriter, r *http.Request, caller Caller) {
	userID := pathParam(r, "user_id")
	if !isWord(userID) {
		s.fail(w, r, reminder.Faults{{Field: "user_id", Problem: "must be " + aWord}})
		return
	}
	act, err := readAct(w, r, caller)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	erased, err := s.Erase.Erase(r.Context(), userID, act)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusOK, wire.Erased{Erased: erased})
}
