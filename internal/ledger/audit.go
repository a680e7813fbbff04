package ledger

import (
	"encoding/json"
	"time"
)

// AuditEvent is one record of the audit log: what an operator, or another holder of an operator's token, did. Audit
// events are only ever added, in the same commit as the change that they describe.
type AuditEvent struct {
	Identity        // of the entry changed; zero if the action concerns no entry
	ID       string // a token never used before
	At       time.Time
	Actor    string // the name that the token belongs to
	Role     string
	Action   string
	Reason   string // in the operator's own words
	Before   string // JSON; empty if the action has no such state
	After    string // likewise
}

// operatorChange returns an operator's change, with its timeline event and its audit event.
func operatorChange(before, next Entry, action string, audit AuditEvent) Change {
	audit.Identity, audit.Action = before.Identity, action
	written := next
	written.Version++
	audit.Before, audit.After = auditState(before), auditState(written)
	event := decisionEvent(Trigger{Origin: OriginOperator, Source: audit.Actor})
	return Change{Entry: next, Event: withResult(next, event), Audit: &audit}
}

// auditState returns the JSON by which the audit log shows an entry: without recipient and content.
func auditState(e Entry) string {
	text, _ := json.Marshal(struct {
		State   State  `json:"state"`
		Class   Class  `json:"class,omitempty"`
		Reason  Reason `json:"reason"`
		Receipt string `json:"receipt,omitempty"`
		Version int64  `json:"version,omitempty"`
	}{e.State, e.Class, e.Reason, e.Receipt, e.Version}) // strings and a number always marshal
	return string(text)
}

// auditState returns the JSON by which the audit log shows a gate.
func (g Gate) auditState() string {
	until, _ := g.ClosedUntil.Fixed()
	shown := struct {
		Paused      bool   `json:"paused"`
		ClosedUntil string `json:"closed_until,omitempty"`
		Class       Class  `json:"class,omitempty"`
	}{Paused: g.Paused, Class: g.Class}
	if !until.IsZero() {
		shown.ClosedUntil = until.UTC().Format(time.RFC3339)
	}
	text, _ := json.Marshal(shown)
	return string(text)
}
