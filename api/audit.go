package api

import (
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// auditFilters are the parameters that narrow the audit log. Each parses its value into the query, and returns what
// is wrong with it.
var auditFilters = map[string]func(q *ledger.AuditQuery, value string) (problem string){
	"actor":  word(func(q *ledger.AuditQuery) *string { return &q.Actor }),
	"action": word(func(q *ledger.AuditQuery) *string { return &q.Action }),
	"from":   instant(func(q *ledger.AuditQuery) *time.Time { return &q.From }),
	"to":     instant(func(q *ledger.AuditQuery) *time.Time { return &q.To }),
}

// audit lists audit events, newest first.
func (s *server) audit(w http.ResponseWriter, r *http.Request, _ Caller) {
	var query ledger.AuditQuery
	inOrder := func() bool { return ordered(query.From, query.To) }
	page, err := readPage(s.cursors, r.URL.RawQuery, "audit", &query, auditFilters, inOrder)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	query.Limit = page.limit + 1 // one more than the page, to know whether there is a next one
	if page.after != nil {
		query.After = &ledger.AuditPosition{At: page.after.at, ID: page.after.id}
	}
	events, err := s.Audit.Audit(r.Context(), query)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.AuditList{}
	if len(events) > page.limit {
		events = events[:page.limit]
		last := events[page.limit-1]
		list.Next = s.cursors.seal(listPosition{last.At, last.ID}, page.list)
	}
	list.Items = make([]wire.AuditEvent, len(events))
	for i, event := range events {
		list.Items[i] = auditEventOf(event)
	}
	writeJSON(w, http.StatusOK, list)
}

func auditEventOf(a ledger.AuditEvent) wire.AuditEvent {
	event := wire.AuditEvent{
		At: a.At.UTC(), ID: a.ID, Actor: a.Actor, Role: a.Role, Action: a.Action, Reason: a.Reason,
		Before: membersOf(a.Before), After: membersOf(a.After),
	}
	if a.Identity != (ledger.Identity{}) {
		event.Entry = a.EntryID()
	}
	return event
}
