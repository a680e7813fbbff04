package postgres

import (
	"math"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

func insertParams(c ledger.Change) pgsql.InsertEntryParams {
	e, event, payload := c.Entry, c.Event, c.Payload
	p := pgsql.InsertEntryParams{
		ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel,
		SendKey: e.SendKey, ContentHash: e.ContentHash,
		State: string(e.State), Class: string(e.Class), Reason: string(e.Reason), EntryCode: e.Code,
		Provider: e.Provider, Fingerprint: e.Fingerprint, Receipt: e.Receipt, ReceiptMissing: string(e.ReceiptMissing),
		Attempts: int64(e.Attempts), BudgetUsed: int64(e.BudgetUsed),
		LeaseExpirations: int64(e.LeaseExpirations), Deliveries: int64(e.Deliveries), Redrives: int64(e.Redrives),
		Holder: e.Holder, Owner: string(e.Owner),
		NotBefore: timeParam(e.NotBefore), Deadline: timeParam(e.Deadline), DoubtSince: timeParam(e.DoubtSince), LookupsNotFound: int64(e.LookupsNotFound),
		CancelRequested: e.CancelRequested,
		Published:       timeParam(e.Published), Source: e.Source, CorrelationID: e.CorrelationID,
		ReservationID: e.ReservationID, UserID: e.UserID,
	}
	p.LeaseAt, p.LeaseAfter = momentParams(e.LeaseUntil)
	p.ClaimedAt, p.ClaimedAfter = momentParams(e.ClaimedAt)
	p.DueAt, p.DueAfter = momentParams(e.Due)
	p.WakeAt, p.WakeAfter = momentParams(e.Wake)
	p.LookupAt, p.LookupAfter = momentParams(e.NextLookup)
	if payload != nil {
		p.HasPayload, p.Recipient = true, payload.Recipient
		p.Content, p.Metadata, p.Raw = payload.Content, payload.Metadata, payload.Raw
	}
	if event != nil {
		p.WithEvent, p.Kind = true, string(event.Kind)
		p.EventState, p.EventReason, p.Origin = string(event.State), string(event.Reason), string(event.Origin)
		p.EventSource, p.MessageID, p.DeliveryCount = event.Source, event.MessageID, int64(event.DeliveryCount)
		p.EventHolder, p.Attempt, p.EventProvider = event.Holder, int64(event.AttemptNumber), event.Provider
		p.StartedAt, p.FinishedAt = timeParam(event.Started), timeParam(event.Finished)
		p.Outcome, p.EventReceipt = outcomeText(*event), event.Outcome.Receipt
		p.Status, p.Code, p.RequestID = int64(event.Outcome.Status), event.Outcome.Code, event.Outcome.RequestID
		p.RetryAfterMicros, p.Cause = event.Outcome.RetryAfter.Microseconds(), event.Outcome.Cause
	}
	return p
}

// updateParams are the values of insertParams without the columns that never change, with the version that was read.
func updateParams(c ledger.Change) pgsql.UpdateEntryParams {
	p := insertParams(c)
	return pgsql.UpdateEntryParams{
		ReminderID: p.ReminderID, Type: p.Type, Channel: p.Channel, Version: c.Entry.Version, ReadAt: timeParam(c.Entry.Updated),
		State: p.State, Class: p.Class, Reason: p.Reason, EntryCode: p.EntryCode,
		Provider: p.Provider, Fingerprint: p.Fingerprint, Receipt: p.Receipt, ReceiptMissing: p.ReceiptMissing,
		Attempts: p.Attempts, BudgetUsed: p.BudgetUsed, LeaseExpirations: p.LeaseExpirations, Deliveries: p.Deliveries,
		Redrives: p.Redrives,
		Holder:   p.Holder, LeaseAt: p.LeaseAt, LeaseAfter: p.LeaseAfter,
		ClaimedAt: p.ClaimedAt, ClaimedAfter: p.ClaimedAfter,
		DueAt: p.DueAt, DueAfter: p.DueAfter, WakeAt: p.WakeAt, WakeAfter: p.WakeAfter, Owner: p.Owner,
		Deadline: p.Deadline, DoubtSince: p.DoubtSince, LookupAt: p.LookupAt, LookupAfter: p.LookupAfter, LookupsNotFound: p.LookupsNotFound,
		CancelRequested: p.CancelRequested,
		Published:       p.Published, Source: p.Source, CorrelationID: p.CorrelationID,
		ReservationID: p.ReservationID, UserID: p.UserID,
		WithEvent: p.WithEvent, Kind: p.Kind, EventState: p.EventState, EventReason: p.EventReason,
		Origin: p.Origin, EventSource: p.EventSource, MessageID: p.MessageID, DeliveryCount: p.DeliveryCount,
		EventHolder: p.EventHolder, Attempt: p.Attempt, EventProvider: p.EventProvider,
		StartedAt: p.StartedAt, FinishedAt: p.FinishedAt,
		Outcome: p.Outcome, EventReceipt: p.EventReceipt, Status: p.Status, Code: p.Code,
		RequestID: p.RequestID, RetryAfterMicros: p.RetryAfterMicros, Cause: p.Cause,
	}
}

// outcomeText is empty for a decision without a call.
func outcomeText(e ledger.TimelineEvent) string {
	if e.Kind == ledger.EventDecision && e.Outcome == (ledger.Outcome{}) {
		return ""
	}
	return e.Outcome.Result.String()
}

func entryOf(r pgsql.Entry) ledger.Entry {
	return ledger.Entry{
		Identity: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		SendKey:  r.SendKey, ContentHash: r.ContentHash,
		State: ledger.State(r.State), Version: r.Version,
		Class: ledger.Class(r.Class), Reason: ledger.Reason(r.Reason), Code: r.Code,
		Provider: r.Provider, Fingerprint: r.Fingerprint,
		Receipt: r.Receipt, ReceiptMissing: ledger.ReceiptMissing(r.ReceiptMissing),
		Attempts: int(r.Attempts), BudgetUsed: int(r.BudgetUsed), LeaseExpirations: int(r.LeaseExpirations), Deliveries: int(r.Deliveries),
		Redrives: int(r.Redrives),
		Holder:   r.Holder, LeaseUntil: momentOf(r.LeaseUntil), ClaimedAt: momentOf(r.ClaimedAt),
		Due: momentOf(r.Due), Wake: momentOf(r.Wake), Owner: ledger.Owner(r.Owner),
		NotBefore: timeOf(r.NotBefore), Deadline: timeOf(r.Deadline), DoubtSince: timeOf(r.DoubtSince),
		NextLookup: momentOf(r.NextLookup), LookupsNotFound: int(r.LookupsNotFound), CancelRequested: r.CancelRequested,
		FirstSeen: utc(r.FirstSeen), Updated: utc(r.Updated), Published: timeOf(r.Published),
		Source: r.Source, CorrelationID: r.CorrelationID, ReservationID: r.ReservationID, UserID: r.UserID,
	}
}

func payloadOf(r pgsql.Payload) ledger.Payload {
	return ledger.Payload{Recipient: r.Recipient, Content: r.Content, Metadata: r.Metadata, Raw: r.Raw}
}

func eventOf(r pgsql.Timeline) ledger.TimelineEvent {
	return ledger.TimelineEvent{
		Version: r.Version, Kind: ledger.EventKind(r.Kind),
		State: ledger.State(r.State), Reason: ledger.Reason(r.Reason),
		Origin: ledger.Origin(r.Origin), Source: r.Source, MessageID: r.MessageID, DeliveryCount: int(r.DeliveryCount),
		Holder: r.Holder, AttemptNumber: int(r.Attempt), Provider: r.Provider,
		Started: timeOf(r.StartedAt), Finished: timeOf(r.FinishedAt),
		Outcome: ledger.Outcome{
			Result: ledger.ParseResult(r.Outcome), Receipt: r.Receipt, Status: int(r.Status),
			Code: r.Code, RequestID: r.RequestID,
			RetryAfter: time.Duration(r.RetryAfterMicros) * time.Microsecond, Cause: r.Cause,
		},
		At: utc(r.At),
	}
}

func conflictOf(r pgsql.Conflict) ledger.Conflict {
	return ledger.Conflict{
		Identity:    ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		ContentHash: r.ContentHash, Source: r.Source, MessageID: r.MessageID, FirstSeen: utc(r.FirstSeen),
	}
}

func auditEventParams(a ledger.AuditEvent) pgsql.AddAuditEventParams {
	return pgsql.AddAuditEventParams{
		ReminderID: a.ReminderID, Type: a.Type, Channel: a.Channel, ID: a.ID,
		Actor: a.Actor, Role: a.Role, Action: a.Action, Reason: a.Reason, Before: a.Before, After: a.After,
	}
}

func auditEventOf(r pgsql.Audit) ledger.AuditEvent {
	return ledger.AuditEvent{
		Identity: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		ID:       r.ID, At: utc(r.At), Actor: r.Actor, Role: r.Role, Action: r.Action, Reason: r.Reason,
		Before: r.Before, After: r.After,
	}
}

func gateOf(r pgsql.Gate) ledger.Gate {
	return ledger.Gate{
		Provider: r.Provider, ClosedUntil: momentOf(r.ClosedUntil), Class: ledger.Class(r.Class),
		Actor: r.Actor, Failures: int(r.Failures), Paused: r.Paused, Version: r.Version, Updated: utc(r.Updated),
	}
}

// listParams sets open bounds to the end of time, so that one statement serves every list.
func listParams(q ledger.Query) pgsql.ListEntriesParams {
	end := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pgsql.ListEntriesParams{
		ReminderID: q.ReminderID, ReservationID: q.ReservationID, UserID: q.UserID,
		State: string(q.State), Class: string(q.Class), OfType: q.Type, Channel: q.Channel,
		Provider: q.Provider, Code: q.Code, SeenFrom: micros(q.From), SeenTo: end, AfterSeen: end,
		AtMost: atMost(q.Limit),
	}
	if !q.To.IsZero() {
		p.SeenTo = micros(q.To)
	}
	if q.After != nil {
		p.AfterSeen = micros(q.After.FirstSeen)
		p.AfterReminderID, p.AfterType, p.AfterChannel = q.After.ReminderID, q.After.Type, q.After.Channel
	}
	return p
}

func atMost(limit int) int32 { return int32(min(max(limit, 1), math.MaxInt32)) }

// momentParams are the arguments of ledger_at: a fixed time, or microseconds after the write, or neither.
func momentParams(m ledger.Moment) (at *time.Time, after *int64) {
	if span, relative := m.Span(); relative {
		microseconds := span.Microseconds()
		return nil, &microseconds
	}
	fixed, _ := m.Fixed()
	return timeParam(fixed), nil
}

func momentOf(t *time.Time) ledger.Moment { return ledger.At(timeOf(t)) }

func timeParam(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = micros(t)
	return &t
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// micros truncates t to microseconds, which PostgreSQL would round.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func utc(t time.Time) time.Time { return t.UTC() }
