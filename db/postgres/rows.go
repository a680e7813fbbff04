package postgres

import (
	"math"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

func createParams(c ledger.Change) pgsql.CreateEntryParams {
	e, event, payload := c.Entry, c.Event, c.Payload
	p := pgsql.CreateEntryParams{
		ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel,
		SendKey: e.SendKey, ContentHash: e.ContentHash,
		State: string(e.State), Class: string(e.Class), Reason: string(e.Reason), EntryCode: e.Code,
		Provider: e.Provider, Fingerprint: e.Fingerprint, Receipt: e.Receipt, Missing: string(e.Missing),
		Attempts: int64(e.Attempts), Spent: int64(e.Spent),
		Lapses: int64(e.Lapses), Deliveries: int64(e.Deliveries), Redrives: int64(e.Redrives),
		Holder: e.Holder, Owner: string(e.Owner),
		NotBefore: timeParam(e.NotBefore), Deadline: timeParam(e.Deadline), DoubtSince: timeParam(e.DoubtSince), Asked: int64(e.Asked),
		CancelAsked: e.CancelAsked,
		Published:   timeParam(e.Published), Source: e.Source, CorrelationID: e.CorrelationID,
		ReservationID: e.ReservationID, UserID: e.UserID,
	}
	p.LeaseAt, p.LeaseAfter = momentParams(e.LeaseUntil)
	p.ClaimedAt, p.ClaimedAfter = momentParams(e.ClaimedAt)
	p.DueAt, p.DueAfter = momentParams(e.Due)
	p.WakeAt, p.WakeAfter = momentParams(e.Wake)
	p.AskAt, p.AskAfter = momentParams(e.AskAt)
	if payload != nil {
		p.WithPayload, p.Recipient = true, payload.Recipient
		p.Content, p.Metadata, p.Raw = payload.Content, payload.Metadata, payload.Raw
	}
	if event != nil {
		p.WithEvent, p.Kind = true, string(event.Kind)
		p.EventState, p.EventReason, p.Origin = string(event.State), string(event.Reason), string(event.Origin)
		p.EventSource, p.MessageID, p.DeliveryCount = event.Source, event.Message, int64(event.Count)
		p.EventHolder, p.Attempt, p.EventProvider = event.Holder, int64(event.Number), event.Provider
		p.StartedAt, p.FinishedAt = timeParam(event.Started), timeParam(event.Finished)
		p.Outcome, p.EventReceipt = outcomeWord(*event), event.Outcome.Receipt
		p.Status, p.Code, p.RequestID = int64(event.Outcome.Status), event.Outcome.Code, event.Outcome.RequestID
		p.RetryAfterMicros, p.Cause = event.Outcome.RetryAfter.Microseconds(), event.Outcome.Cause
	}
	return p
}

// swapParams are the same values under the version that was read, less what never changes.
func swapParams(c ledger.Change) pgsql.SwapEntryParams {
	p := createParams(c)
	return pgsql.SwapEntryParams{
		ReminderID: p.ReminderID, Type: p.Type, Channel: p.Channel, Version: c.Entry.Version, ReadAt: timeParam(c.Entry.Updated),
		State: p.State, Class: p.Class, Reason: p.Reason, EntryCode: p.EntryCode,
		Provider: p.Provider, Fingerprint: p.Fingerprint, Receipt: p.Receipt, Missing: p.Missing,
		Attempts: p.Attempts, Spent: p.Spent, Lapses: p.Lapses, Deliveries: p.Deliveries,
		Redrives: p.Redrives,
		Holder:   p.Holder, LeaseAt: p.LeaseAt, LeaseAfter: p.LeaseAfter,
		ClaimedAt: p.ClaimedAt, ClaimedAfter: p.ClaimedAfter,
		DueAt: p.DueAt, DueAfter: p.DueAfter, WakeAt: p.WakeAt, WakeAfter: p.WakeAfter, Owner: p.Owner,
		Deadline: p.Deadline, DoubtSince: p.DoubtSince, AskAt: p.AskAt, AskAfter: p.AskAfter, Asked: p.Asked,
		CancelAsked: p.CancelAsked,
		Published:   p.Published, Source: p.Source, CorrelationID: p.CorrelationID,
		ReservationID: p.ReservationID, UserID: p.UserID,
		WithEvent: p.WithEvent, Kind: p.Kind, EventState: p.EventState, EventReason: p.EventReason,
		Origin: p.Origin, EventSource: p.EventSource, MessageID: p.MessageID, DeliveryCount: p.DeliveryCount,
		EventHolder: p.EventHolder, Attempt: p.Attempt, EventProvider: p.EventProvider,
		StartedAt: p.StartedAt, FinishedAt: p.FinishedAt,
		Outcome: p.Outcome, EventReceipt: p.EventReceipt, Status: p.Status, Code: p.Code,
		RequestID: p.RequestID, RetryAfterMicros: p.RetryAfterMicros, Cause: p.Cause,
	}
}

// outcomeWord is empty for a line that tells of no call.
func outcomeWord(e ledger.Event) string {
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
		Receipt: r.Receipt, Missing: ledger.Missing(r.Missing),
		Attempts: int(r.Attempts), Spent: int(r.Spent), Lapses: int(r.Lapses), Deliveries: int(r.Deliveries),
		Redrives: int(r.Redrives),
		Holder:   r.Holder, LeaseUntil: momentOf(r.LeaseUntil), ClaimedAt: momentOf(r.ClaimedAt),
		Due: momentOf(r.Due), Wake: momentOf(r.Wake), Owner: ledger.Owner(r.Owner),
		NotBefore: timeOf(r.NotBefore), Deadline: timeOf(r.Deadline), DoubtSince: timeOf(r.DoubtSince),
		AskAt: momentOf(r.AskAt), Asked: int(r.Asked), CancelAsked: r.CancelAsked,
		FirstSeen: utc(r.FirstSeen), Updated: utc(r.Updated), Published: timeOf(r.Published),
		Source: r.Source, CorrelationID: r.CorrelationID, ReservationID: r.ReservationID, UserID: r.UserID,
	}
}

func payloadOf(r pgsql.Payload) ledger.Payload {
	return ledger.Payload{Recipient: r.Recipient, Content: r.Content, Metadata: r.Metadata, Raw: r.Raw}
}

func eventOf(r pgsql.Timeline) ledger.Event {
	return ledger.Event{
		Version: r.Version, Kind: ledger.EventKind(r.Kind),
		State: ledger.State(r.State), Reason: ledger.Reason(r.Reason),
		Origin: ledger.Origin(r.Origin), Source: r.Source, Message: r.MessageID, Count: int(r.DeliveryCount),
		Holder: r.Holder, Number: int(r.Attempt), Provider: r.Provider,
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

func actParams(a ledger.Act) pgsql.AddActParams {
	return pgsql.AddActParams{
		ReminderID: a.ReminderID, Type: a.Type, Channel: a.Channel, ID: a.ID,
		Actor: a.By, Role: a.Role, Verb: a.Verb, Why: a.Why, Before: a.Before, After: a.After,
	}
}

func actOf(r pgsql.Audit) ledger.Act {
	return ledger.Act{
		Identity: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		ID:       r.ID, At: utc(r.At), By: r.Actor, Role: r.Role, Verb: r.Verb, Why: r.Why,
		Before: r.Before, After: r.After,
	}
}

func gateOf(r pgsql.Gate) ledger.Gate {
	return ledger.Gate{
		Provider: r.Provider, ClosedUntil: momentOf(r.ClosedUntil), Class: ledger.Class(r.Class),
		By: r.ClosedBy, Strikes: int(r.Strikes), Paused: r.Paused, Version: r.Version, Updated: utc(r.Updated),
	}
}

// listParams puts the end of time where a bound is left open, so that one statement serves every list.
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

// momentParams are the arguments of ledger_at: a time, or the microseconds from the write, or neither.
func momentParams(m ledger.Moment) (at *time.Time, after *int64) {
	if span, is := m.Span(); is {
		distance := span.Microseconds()
		return nil, &distance
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

// micros cuts what PostgreSQL would round.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func utc(t time.Time) time.Time { return t.UTC() }
