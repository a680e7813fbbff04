package ledger

import "time"

// ReportKind is what a provider says of its own accord about a message: a closed set.
type ReportKind string

const (
	// ReportAccepted : it took the message.
	ReportAccepted ReportKind = "accepted"
	// ReportDelivered : it handed it on.
	ReportDelivered ReportKind = "delivered"
	// ReportBounced : the address did not take it.
	ReportBounced ReportKind = "bounced"
	// ReportFailed : it gave up on it.
	ReportFailed ReportKind = "failed"
	// ReportComplained : the person called it spam.
	ReportComplained ReportKind = "complained"
)

// ReportKinds lists every kind.
func ReportKinds() []ReportKind {
	return []ReportKind{ReportAccepted, ReportDelivered, ReportBounced, ReportFailed, ReportComplained}
}

// Report is one signed message of a provider about one send key.
type Report struct {
	Identity
	Kind     ReportKind
	Provider string
	Message  string // the report's own id, by which a repeated one is known
	Receipt  string // the provider's id for the message; may be empty
	Code     string // the provider's own machine code; may be empty
	At       time.Time
}

// Heard records a report beside the entry, and reports whether there is anything to record. Only accepted
// and delivered prove anything: they make every entry sent, whatever its state, even one that the ledger does
// not hold, since it may have been forgotten by a database that changed. The rest changes no state: what
// bounced is not sent again by us.
func Heard(e Entry, report Report) (Change, bool) {
	reason := reportReasons[report.Kind]
	next := e
	if report.Kind == ReportAccepted || report.Kind == ReportDelivered {
		var news Reason
		if e.Absent() {
			e = forgottenBy(report)
		}
		switch next, news = provenSomehow(e, report.Receipt); {
		case news != ReasonReplayed:
			reason = news
		case report.Kind == ReportAccepted:
			return Change{}, false
		}
	} else if e.Absent() {
		return Change{}, false
	}
	event := decision(Visit{Origin: OriginProvider, Source: report.Provider, Message: report.Message})
	event.Kind, event.Provider = EventReport, report.Provider
	event.Outcome = Outcome{Receipt: report.Receipt, Code: report.Code, Cause: string(report.Kind)}
	event.Started, event.Finished = report.At, report.At
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}, true
}

// forgottenBy is the entry that a provider knows and the ledger does not hold.
func forgottenBy(report Report) Entry {
	return Entry{
		Identity: report.Identity, SendKey: report.Identity.SendKey(), Provider: report.Provider,
		Source: report.Provider, Published: report.At,
	}
}

var reportReasons = map[ReportKind]Reason{
	ReportAccepted: ReasonReplayed, ReportDelivered: ReasonDelivered, ReportBounced: ReasonBounced,
	ReportFailed: ReasonFailedLater, ReportComplained: ReasonComplained,
}
