package ledger

import "time"

// Result is what one call to a provider proved. The zero value is [ResultUnknown], so that a case
// somebody forgot can never lead to a second send.
type Result uint8

const (
	// ResultUnknown : may have been sent.
	ResultUnknown Result = iota
	// ResultAccepted : the provider took it.
	ResultAccepted
	// ResultRefused : this message or content will never be taken.
	ResultRefused
	// ResultGone : this address or token is no more.
	ResultGone
	// ResultCredentials : ours are wrong, or our set-up is; proven unsent.
	ResultCredentials
	// ResultThrottled : not processed, come back later; proven unsent.
	ResultThrottled
	// ResultUnreachable : proven unsent, or a refusal that the provider documents as temporary.
	ResultUnreachable
	// ResultNotCalled : nothing was dialled, because the time for it had passed.
	ResultNotCalled
)

var resultWords = [...]string{
	ResultUnknown: "unknown", ResultAccepted: "accepted", ResultRefused: "refused", ResultGone: "gone",
	ResultCredentials: "credentials", ResultThrottled: "throttled", ResultUnreachable: "unreachable",
	ResultNotCalled: "not_called",
}

// Results lists every result.
func Results() []Result {
	all := make([]Result, len(resultWords))
	for i := range all {
		all[i] = Result(i)
	}
	return all
}

// String is the result as one word of a closed set; a value outside it is "unknown".
func (r Result) String() string {
	if int(r) < len(resultWords) {
		return resultWords[r]
	}
	return resultWords[ResultUnknown]
}

// ParseResult reads back [Result.String]; what it does not know is [ResultUnknown].
func ParseResult(word string) Result {
	for i, w := range resultWords {
		if w == word {
			return Result(i)
		}
	}
	return ResultUnknown
}

// Outcome is what one call to a provider proved, with its evidence. It carries no recipient and no
// content: Code and RequestID are machine words of the provider, at most 128 printable characters.
type Outcome struct {
	Result     Result
	Receipt    string        // the provider's id for the message; with ResultAccepted it may be missing
	Status     int           // HTTP status or SMTP reply code; 0 when there was no answer
	Code       string        // the provider's own machine code
	RequestID  string        // the provider's id for the request
	RetryAfter time.Duration // as the provider said it, not yet clamped; 0 when it said nothing
	Cause      string        // in our words what happened, from a closed set: "timeout", "reset", "status", …
}

// ContractKind is what a provider promises about repeats.
type ContractKind uint8

const (
	// Blind : nothing; a repeat may be a second send.
	Blind ContractKind = iota
	// Idempotent : a repeat under the same key within the window is not a second send.
	Idempotent
	// Lookup : it can be asked later whether a key was accepted.
	Lookup
)

// String is the kind as one word.
func (k ContractKind) String() string {
	switch k {
	case Idempotent:
		return "idempotent"
	case Lookup:
		return "lookup"
	default:
		return "blind"
	}
}

// Contract is what a provider declares.
type Contract struct {
	Kind   ContractKind
	Window time.Duration // how long an idempotent provider remembers a key
}

// OnUnknown is a type's policy for an unknown outcome at a blind provider.
type OnUnknown string

const (
	// Hold : nobody repeats it; a person decides. The default.
	Hold OnUnknown = "hold"
	// AssumeSent : it counts as sent, and says that nothing proves it.
	AssumeSent OnUnknown = "assume_sent"
	// Resend : it is sent again; the risk of a second send is taken and recorded.
	Resend OnUnknown = "resend"
)

// Route is a provider as configured now.
type Route struct {
	Provider    string // its name; empty when there is none
	Fingerprint string // of account, endpoint and contract
	Contract    Contract
}
