package sqlite

import (
	"math"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

func insertParams(e ledger.Entry) litesql.InsertEntryParams {
	p := litesql.InsertEntryParams{
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
	return p
}

// updateParams are the values of insertParams without the columns that never change, with the version that was read.
func updateParams(e ledger.Entry) litesql.UpdateEntryParams {
	p := insertParams(e)
	return litesql.UpdateEntryParams{
		ReminderID: p.ReminderID, Type: p.Type, Channel: p.Channel, Version: e.Version, ReadAt: timeParam(e.Updated),
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
	}
}

func payloadParams(id ledger.Identity, p ledger.Payload) litesql.AddPayloadParams {
	return litesql.AddPayloadParams{
		ReminderID: id.ReminderID, Type: id.Type, Channel: id.Channel,
		Recipient: p.Recipient, Content: p.Content, Metadata: p.Metadata, Raw: p.Raw,
	}
}

// eventParams take version and time of an event from the row that was written with it.
func eventParams(row litesql.Entry, e ledger.TimelineEvent) litesql.AddEventParams {
	return litesql.AddEventParams{
		ReminderID: row.ReminderID, Type: row.Type, Channel: row.Channel, Version: row.Version, At: row.Updated,
		Kind: string(e.Kind), State: string(e.State), Reason: string(e.Reason), Origin: string(e.Origin),
		Source: e.Source, MessageID: e.MessageID, DeliveryCount: int64(e.DeliveryCount),
		Holder: e.Holder, Attempt: int64(e.AttemptNumber), Provider: e.Provider,
		StartedAt: timeParam(e.Started), FinishedAt: timeParam(e.Finished),
		Outcome: outcomeText(e), Receipt: e.Outcome.Receipt, Status: int64(e.Outcome.Status),
		Code: e.Outcome.Code, RequestID: e.Outcome.RequestID,
		RetryAfterMicros: e.Outcome.RetryAfter.Microseconds(), Cause: e.Outcome.Cause,
	}
}

// outcomeText is empty for a decision without a call.
func outcomeText(e ledger.TimelineEvent) string {
	if e.Kind == ledger.EventDecision && e.Outcome == (ledger.Outcome{}) {
		return ""
	}
	return e.Outcome.Result.String()
}

func entryOf(r litesql.Entry) ledger.Entry {
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
		FirstSeen: timeOf(&r.FirstSeen), Updated: timeOf(&r.Updated), Published: timeOf(r.Published),
		Source: r.Source, CorrelationID: r.CorrelationID, ReservationID: r.ReservationID, UserID: r.UserID,
	}
}

func payloadOf(r litesql.Payload) ledger.Payload {
	return ledger.Payload{Recipient: r.Recipient, Content: r.Content, Metadata: r.Metadata, Raw: r.Raw}
}

func eventOf(r litesql.Timeline) ledger.TimelineEvent {
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
		At: timeOf(&r.At),
	}
}

func conflictOf(r litesql.Conflict) ledger.Conflict {
	return ledger.Conflict{
		Identity:    ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		ContentHash: r.ContentHash, Source: r.Source, MessageID: r.MessageID, FirstSeen: timeOf(&r.FirstSeen),
	}
}

func auditEventParams(a ledger.AuditEvent) litesql.AddAuditEventParams {
	return litesql.AddAuditEventParams{
		ReminderID: a.ReminderID, Type: a.Type, Channel: a.Channel, ID: a.ID,
		Actor: a.Actor, Role: a.Role, Action: a.Action, Reason: a.Reason, Before: a.Before, After: a.After,
	}
}

func auditEventOf(r litesql.Audit) ledger.AuditEvent {
	return ledger.AuditEvent{
		Identity: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		ID:       r.ID, At: timeOf(&r.At), Actor: r.Actor, Role: r.Role, Action: r.Action, Reason: r.Reason,
		Before: r.Before, After: r.After,
	}
}

func gateOf(r litesql.Gate) ledger.Gate {
	return ledger.Gate{
		Provider: r.Provider, ClosedUntil: momentOf(r.ClosedUntil), Class: ledger.Class(r.Class),
		Actor: r.Actor, Failures: int(r.Failures), Paused: r.Paused, Version: r.Version, Updated: timeOf(&r.Updated),
	}
}

// listParams sets open bounds to the end of time, so that one statement serves every list.
func listParams(q ledger.Query) litesql.ListEntriesParams {
	p := litesql.ListEntriesParams{
		ReminderID: q.ReminderID, ReservationID: q.ReservationID, UserID: q.UserID,
		State: string(q.State), Class: string(q.Class), OfType: q.Type, Channel: q.Channel,
		Provider: q.Provider, Code: q.Code, SeenFrom: q.From.UnixMicro(), SeenTo: math.MaxInt64, AfterSeen: math.MaxInt64,
		AtMost: int64(max(q.Limit, 1)),
	}
	if !q.To.IsZero() {
		p.SeenTo = q.To.UnixMicro()
	}
	if q.After != nil {
		p.AfterSeen = q.After.FirstSeen.UnixMicro()
		p.AfterReminderID, p.AfterType, p.AfterChannel = q.After.ReminderID, q.After.Type, q.After.Channel
	}
	return p
}

// momentParams are the arguments of ledger_at: a fixed time, or microseconds after the write, or neither.
func momentParams(m ledger.Moment) (at, after any) {
	if span, relative := m.Span(); relative {
		return nil, span.Microseconds()
	}
	if fixed, ok := m.Fixed(); ok {
		return fixed.UnixMicro(), nil
	}
	return nil, nil
}

func momentOf(at *int64) ledger.Moment { return ledger.At(timeOf(at)) }

func timeParam(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	at := t.UnixMicro()
	return &at
}

func timeOf(at *int64) time.Time {
	if at == nil {
		return time.Time{}
	}
	return time.UnixMicro(*at).UTC()
}
