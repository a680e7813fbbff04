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

// step is how far a session came.
type step int

const (
	hello     step = iota // greeting, EHLO, STARTTLS, AUTH
	sender                // MAIL
	recipient             // RCPT
	body                  // DATA, and the message without its dot
	dot                   // the dot is written, or may be
)

// Causes of this package's own, beside those of outbound.
const (
	causeSetup     = "setup"     // the server does not offer what we are configured to use
	causeRecipient = "recipient" // errRecipient
	causeContent   = "content"   // errContent
)

var errSetup = errors.New("smtp: the server does not offer what is configured")

var (
	enhancedCode = regexp.MustCompile(`^([245])\.(\d{1,3})\.(\d{1,3})\b`)
	rateWords    = regexp.MustCompile(`(?i)\brate\b|too (many|much|fast)|throttl|quota|slow down`)
	queueWords   = regexp.MustCompile(`(?i)(?:\bqueued as |\bid=)<?([!-;=?-~]+)`)
)

// judge tells what a session proved that ended at a step with an error.
func judge(ctx context.Context, at step, err error) ledger.Outcome {
	var reply *textproto.Error
	switch {
	case errors.As(err, &reply):
		found := enhancedCode.FindString(reply.Msg)
		return ledger.Outcome{
			Result: classOf(at, reply.Code, found, reply.Msg),
			Status: reply.Code, Code: provider.Word(found), Cause: outbound.CauseStatus,
		}
	case at == dot:
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

// classOf reads a reply (RFC 5321, section 4.2.3; RFC 3463 and RFC 7504 where they say more; RFC 4954
// for AUTH). A class that stops the whole stream is read only from what cannot be about one message: a single
// recipient whom a server answers oddly must not close the gate before all others.
func classOf(at step, code int, enhanced, text string) ledger.Result {
	if code < 400 || code > 599 {
		if at == dot {
			return ledger.ResultUnknown // no reply that section 4.3.2 allows there
		}
		return ledger.ResultUnreachable
	}
	class, subject, detail := split(enhanced)
	switch {
	case code < 500 || class == "4":
		if subject == "7" && rateWords.MatchString(text) {
			return ledger.ResultThrottled
		}
		return ledger.ResultUnreachable
	case code == 530, code == 534, code == 535, code == 538:
		return ledger.ResultCredentials
	case subject == "7" && (detail == "8" || detail == "9" || detail == "11"):
		return ledger.ResultCredentials // authentication, or its mechanism, or the encryption is not enough
	case subject == "2" && detail == "3", subject == "3" && detail == "4":
		return ledger.ResultRefused // too large
	case at == sender && code == 552:
		return ledger.ResultRefused // too large, as announced
	case at < recipient, code == 500, code == 502, code == 503, code == 504:
		return ledger.ResultCredentials // of us, our sender, or the way we speak
	case subject == "1" && (detail == "7" || detail == "8"):
		return ledger.ResultCredentials // the sender's address
	case subject == "1", subject == "2":
		return ledger.ResultGone
	case subject == "4":
		return ledger.ResultUnreachable
	case at == recipient && subject != "7":
		switch code {
		case 501, 550, 551, 553, 556:
			return ledger.ResultGone
		case 552:
			return ledger.ResultUnreachable // "too many recipients" by RFC 5321, section 4.5.3.1.10
		}
	}
	return ledger.ResultRefused
}

func split(enhanced string) (class, subject, detail string) {
	if m := enhancedCode.FindStringSubmatch(enhanced); m != nil {
		return m[1], m[2], m[3]
	}
	return "", "", ""
}

// receiptIn finds the queue's id in the text of an acceptance, which no standard shapes. Where no known
// form is met, the whole text serves. What names an address is no receipt: it may be the recipient's.
func receiptIn(text string) string {
	found := strings.TrimSpace(text)
	if m := queueWords.FindStringSubmatch(text); m != nil {
		found = strings.TrimRight(m[1], ".,;)")
	}
	if strings.Contains(found, "@") {
		return ""
	}
	return provider.Receipt(found)
}
