package smtp

import (
	"context"
	"errors"
	"net/textproto"
	"regexp"
	"strings"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// step is a step of a session, in the order of the protocol.
type step int

const (
	stepHello step = iota // greeting, EHLO, STARTTLS, AUTH
	stepMail              // MAIL
	stepRcpt              // RCPT
	stepData              // DATA, and the message without its final dot
	stepDot               // the final dot has been written, or may have been
)

// Causes specific to this package, in addition to those of outbound.
const (
	causeSetup     = "setup"     // the server does not offer what the configuration requires
	causeRecipient = "recipient" // errRecipient
	causeContent   = "content"   // errContent
)

var errSetup = errors.New("smtp: the server does not offer what the configuration requires")

var (
	enhancedCode = regexp.MustCompile(`^([245])\.(\d{1,3})\.(\d{1,3})\b`)
	rateText     = regexp.MustCompile(`(?i)\brate\b|too (many|much|fast)|throttl|quota|slow down`)
	queueID      = regexp.MustCompile(`(?i)(?:\bqueued as |\bid=)<?([!-;=?-~]+)`)
)

// outcomeOf returns what a session proved that ended with err at the given step.
func outcomeOf(ctx context.Context, at step, err error) ledger.Outcome {
	var reply *textproto.Error
	switch {
	case errors.As(err, &reply):
		found := enhancedCode.FindString(reply.Msg)
		return ledger.Outcome{
			Result: classOf(at, reply.Code, found, reply.Msg),
			Status: reply.Code, Code: provider.Printable(found), Cause: outbound.CauseStatus,
		}
	case at == stepDot:
		return ledger.Outcome{Cause: outbound.CauseOf(ctx, err)}
	case errors.Is(err, errSetup):
		return ledger.Outcome{Result: ledger.ResultCredentials, Cause: causeSetup}
	case errors.Is(err, errRecipient):
		return ledger.Outcome{Result: ledger.ResultRefused, Cause: causeRecipient}
	case errors.Is(err, errContent):
		return ledger.Outcome{Result: ledger.ResultRefused, Cause: causeContent}
	}
	o := ledger.Outcome{Result: ledger.ResultUnreachable, Cause: outbound.CauseOf(ctx, err)}
	if o.Cause == outbound.CauseCertificate {
		o.Result = ledger.ResultCredentials
	}
	return o
}

// classOf maps a reply to a result (RFC 5321, section 4.2.3; RFC 3463 and RFC 7504 where they are more specific;
// RFC 4954 for AUTH). A result that closes the gate at once is returned only for a reply that cannot concern a single
// message: an unusual reply to one recipient must not stop the messages to all others.
func classOf(at step, code int, enhanced, text string) ledger.Result {
	if code < 400 || code > 599 {
		if at == stepDot {
			return ledger.ResultUnknown // not a reply that section 4.3.2 allows here
		}
		return ledger.ResultUnreachable
	}
	class, subject, detail := split(enhanced)
	switch {
	case code < 500 || class == "4":
		switch {
		case subject == "7" && rateText.MatchString(text):
			return ledger.ResultThrottled
		case at < stepRcpt, outOfService(at, code, subject, detail):
			return ledger.ResultUnreachable
		}
		return ledger.ResultDeferred // about this recipient or this message
	case code == 530, code == 534, code == 535, code == 538:
		return ledger.ResultCredentials
	case subject == "7" && (detail == "8" || detail == "9" || detail == "11"):
		return ledger.ResultCredentials // authentication, its mechanism or the encryption is insufficient
	case subject == "2" && detail == "3", subject == "3" && detail == "4":
		return ledger.ResultRefused // too large
	case at == stepMail && code == 552:
		return ledger.ResultRefused // the announced size is too large
	case at < stepRcpt, code == 500, code == 502, code == 503, code == 504:
		return ledger.ResultCredentials // about us, our sender address, or our use of the protocol
	case subject == "1" && (detail == "7" || detail == "8"):
		return ledger.ResultCredentials // the sender's address
	case subject == "1", subject == "2":
		return ledger.ResultGone
	case subject == "4":
		return ledger.ResultDeferred // the way to this recipient's server
	case at == stepRcpt && subject != "7":
		switch code {
		case 501, 550, 551, 553, 556:
			return ledger.ResultGone
		case 552:
			return ledger.ResultDeferred // "too many recipients" by RFC 5321, section 4.5.3.1.10
		}
	}
	return ledger.ResultRefused
}

// outOfService reports whether a temporary refusal after MAIL is about the server and not about the recipient or the
// message: it closes the session, its storage is full, or it takes no mail at all. Any trouble of the server
// (RFC 3463, section 3.4) counts as such once the recipient is accepted; before that it may be about the recipient.
func outOfService(at step, code int, subject, detail string) bool {
	switch {
	case code == 421:
		return true
	case subject == "3":
		return at > stepRcpt || detail == "1" || detail == "2"
	default:
		return at > stepRcpt && code == 452 && subject == ""
	}
}

func split(enhanced string) (class, subject, detail string) {
	if m := enhancedCode.FindStringSubmatch(enhanced); m != nil {
		return m[1], m[2], m[3]
	}
	return "", "", ""
}

// receiptFrom extracts the queue id from the text of an acceptance, whose format no standard defines. If no known
// format matches, the whole text is the receipt. A text that contains an address is not used: it may be the
// recipient's.
func receiptFrom(text string) string {
	found := strings.TrimSpace(text)
	if m := queueID.FindStringSubmatch(text); m != nil {
		found = strings.TrimRight(m[1], ".,;)")
	}
	if strings.Contains(found, "@") {
		return ""
	}
	return provider.Receipt(found)
}
