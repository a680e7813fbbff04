package ledger

import "time"

// Result is what one call to a provider proved. The zero value is [ResultUnknown], so that an unhandled case can
// never lead to a second send.
type Result uint8

// The results of a call.
const (
	ResultUnknown     Result = iota // it may have been sent
	ResultAccepted                  // the provider accepted it
	ResultRefused                   // the provider will never accept this message or content
	ResultGone                      // this address or token does not exist any more
	ResultCredentials               // our credentials or our setup are wrong; proven unsent
	ResultThrottled                 // not processed, retry later; proven unsent
	ResultUnreachable               // proven unsent: there was no connection, or the provider as a whole is out of service
	ResultNotCalled                 // nothing was dialled: the time for it had passed, or the message could not be read
	ResultDeferred                  // the provider answered: it takes this message, or this recipient, later; proven unsent
)

var resultWords = [...]string{
	ResultUnknown: "unknown", ResultAccepted: "accepted", ResultRefused: "refused", ResultGone: "gone",
	ResultCredentials: "credentials", ResultThrottled: "throttled", ResultUnreachable: "unreachable",
	ResultNotCalled: "not_called", ResultDeferred: "deferred",
}

// Results lists every result.
func Results() []Result {
	all := make([]Result, len(resultWords))
	for i := range all {
		all[i] = Result(i)
	}
	return all
}

// String returns the result as one word of a closed set; a value outside it is "unknown".
func (r Result) String() string {
	if int(r) < len(resultWords) {
		return resultWords[r]
	}
	return resultWords[ResultUnknown]
}

// ParseResult parses what [Result.String] returned; any other word is [ResultUnknown].
func ParseResult(word string) Result {
	for i, w := range resultWords {
		if w == word {
			return Result(i)
		}
	}
	return ResultUnknown
}

// Outcome is the result of one call to a provider, with its evidence. It contains no recipient and no content: Code
// and RequestID are the provider's machine-readable words, at most 128 printable characters.
type Outcome struct {
	Result     Result
	Receipt    string        // the provider's id for the message; with ResultAccepted it may be missing
	Status     int           // HTTP status or SMTP reply code; 0 if there was no answer
	Code       string        // the provider's own machine code
	RequestID  string        // the provider's id for the request
	RetryAfter time.Duration // as the provider gave it, not yet clamped; 0 if it gave none
	Cause      string        // what happened, in one of our words ("timeout", "reset", "status", …); of a dead-lettered delivery, the queue
}

// ContractKind is what a provider guarantees about repeats.
type ContractKind uint8

// The kinds of contracts.
const (
	ContractBlind      ContractKind = iota // nothing; a repeat may be a second send
	ContractIdempotent                     // a repeat under the same key within the window is not a second send
	ContractLookup                         // it can be asked later whether it accepted a key
)

// String returns the kind as one word.
func (k ContractKind) String() string {
	switch k {
	case ContractIdempotent:
		return "idempotent"
	case ContractLookup:
		return "lookup"
	default:
		return "blind"
	}
}

// Contract is what a provider declares about repeats.
type Contract struct {
	Kind   ContractKind
	Window time.Duration // how long an idempotent provider remembers a key
}

// OnUnknown is a type's policy for an unknown outcome at a blind provider, and after the last lookup of another one.
type OnUnknown string

// The policies for an unknown outcome.
const (
	Hold       OnUnknown = "hold"        // it is not repeated; an operator decides. The default
	AssumeSent OnUnknown = "assume_sent" // it counts as sent, and records that nothing proves it
	Resend     OnUnknown = "resend"      // it is sent again; the risk of a second send is taken and recorded
)

// Route is a provider as configured now.
type Route struct {
	Provider    string // its name; empty if there is none
	Fingerprint string // of account, endpoint and contract
	Contract    Contract
}
