package rehearsal

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// sandboxRecipient makes a sandbox accept the message and lose its answer. Its domain is reserved (RFC 2606), in case the
// channel leads to a real provider.
const sandboxRecipient = "timeout-after-accept@rehearsal.invalid"

// stagingTimeout bounds the wait for a running gateway, whose lease and backoff are not known.
const stagingTimeout = 3 * time.Minute

// Staging runs the scenario through a gateway that is already running, and kills no process.
type Staging struct {
	URL           string
	Token         string // of role operator
	ProducerToken string // requests over REST if there is no Source
	Source        string // a push source of format plain, and its bearer token
	SourceToken   string
	Channel, Type string
	Contract      string // that the sandbox is expected to have; empty for any
	Out           io.Writer
	Progress      io.Writer
}

// Run runs the scenario and prints its steps and verdict, as [Rehearsal.Run] does.
func (s Staging) Run(ctx context.Context) error {
	admin, err := newAdminClient(s.URL, s.Token, directClient(time.Minute))
	if err != nil {
		return err
	}
	sc := &stagingScenario{Staging: s, adminClient: admin, printer: &printer{out: s.Out, progress: s.Progress}}
	sc.reminder = "rehearsal-" + strings.ToLower(rand.Text()[:10])
	if err := sc.adminClient.checkOperator(ctx); ctx.Err() != nil {
		return errInterrupted
	} else if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{sc.deliverFirst, sc.redeliver, sc.decide, sc.deliverAgain} {
		if err := step(ctx); ctx.Err() != nil {
			return errInterrupted
		} else if err != nil {
			return err
		}
	}
	sc.step("The entry and its timeline, as support sees them.")
	sc.timeline(sc.detail)
	findings := judgeDetail(sc.detail, sc.listed, s.Contract)
	sc.verdict(findings, func() string { return "the timeline shows one send" })
	more, err := sc.redriveTwice(ctx)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case len(findings)+len(more) > 0:
		return ErrWrong
	}
	return nil
}

// stagingScenario is one run through a running gateway.
type stagingScenario struct {
	Staging
	*printer
	adminClient *adminClient
	reminder    string
	body        client.Reminder
	detail      *client.EntryDetail
	listed      bool
}

func (sc *stagingScenario) deliverFirst(ctx context.Context) error {
	now := time.Now().UTC()
	sc.body = client.Reminder{
		ReminderID: sc.reminder, Type: sc.Type, Channel: sc.Channel, To: sandboxRecipient, CreatedAt: now, Deadline: now.Add(10 * time.Minute),
		Content: map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."},
	}
	sc.title("through the gateway at " + sc.URL)
	sc.line("left out", "the end of the process; -config rehearses it")
	sc.line("provider", "must be a sandbox: the recipient is %s", sandboxRecipient)
	sc.step("A reservation runs out at %s, and its reminder is delivered; the provider accepts it, and its answer is lost.",
		sc.body.Deadline.Format(time.TimeOnly))
	return sc.deliverOnce(ctx, sc.body)
}

// deliverOnce delivers a reminder once, by push or over REST.
func (sc *stagingScenario) deliverOnce(ctx context.Context, body client.Reminder) error {
	if sc.Source == "" {
		d, err := sc.request(ctx, body)
		if err != nil {
			return err
		}
		sc.line("caller", "is answered %d: %s (%s)", d.Status, d.State, d.Reason)
		return nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	push := &broker{client: directClient(time.Minute), source: sc.Source, token: sc.SourceToken, message: body.ReminderID + "-m1", body: raw}
	d, err := push.deliver(ctx, sc.URL)
	if err != nil {
		return err
	}
	sc.line("broker", "is answered %s", d)
	return nil
}

// request requests a reminder over REST.
func (sc *stagingScenario) request(ctx context.Context, body client.Reminder) (delivery, error) {
	admin, err := newAdminClient(sc.URL, sc.ProducerToken, directClient(time.Minute))
	if err != nil {
		return delivery{}, err
	}
	answer, err := admin.client.RequestReminderWithResponse(ctx, body)
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: request the reminder: %w", err)
	}
	d := delivery{Status: answer.StatusCode()}
	for _, e := range []*client.Entry{answer.JSON200, answer.JSON202} {
		if e != nil {
			d.State, d.Reason = string(e.State), e.Reason
			return d, nil
		}
	}
	if d.Status == http.StatusServiceUnavailable {
		return d, nil
	}
	return d, fmt.Errorf("rehearse: request the reminder: %s %s", answer.Status(), answer.Body)
}

// redeliver delivers it again until it is settled or needs an operator.
func (sc *stagingScenario) redeliver(ctx context.Context) error {
	sc.step("It is delivered again until it is settled.")
	for until := time.Now().Add(stagingTimeout); ; {
		if err := sc.deliverOnce(ctx, sc.body); err != nil {
			return err
		}
		if err := sc.readDetail(ctx); err != nil {
			return err
		}
		settled := sc.detail != nil && sc.detail.Entry.State != client.StateSending && sc.detail.Entry.State != client.StateWaiting
		if settled || time.Now().After(until) {
			return nil
		}
		sc.wait(2*time.Second, "it is not settled")
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// decide resolves the entry if it is unknown and the token has the role operator.
func (sc *stagingScenario) decide(ctx context.Context) error {
	if sc.detail == nil || sc.detail.Entry.State != client.StateUnknown {
		return nil
	}
	sc.step("A repeat is not allowed: it waits for a decision.")
	e := sc.detail.Entry
	waitsFor, err := sc.adminClient.waitsFor(ctx, e.ID)
	sc.listed = waitsFor != ""
	if !sc.listed {
		sc.line("operator", "does not find it among the unresolved entries%s", causeOf(err))
		return ctx.Err()
	}
	sc.line("operator", "finds it listed: %s (%s), waits for: %s", e.State, e.Reason, waitsFor)
	if err := sc.adminClient.resolve(ctx, e, "rehearsal: the sandbox accepts every message to this recipient", ""); err != nil {
		sc.line("operator", "cannot resolve it%s", causeOf(err))
		return ctx.Err()
	}
	sc.line("operator", "resolves: sent")
	return nil
}

func (sc *stagingScenario) deliverAgain(ctx context.Context) error {
	sc.step("It is delivered once more.")
	if err := sc.deliverOnce(ctx, sc.body); err != nil {
		return err
	}
	return sc.readDetail(ctx)
}

func (sc *stagingScenario) readDetail(ctx context.Context) (err error) {
	sc.detail, err = sc.adminClient.detail(ctx, sc.reminder)
	return err
}

// judgeDetail judges by the timeline alone, since the calls that the provider received are not known. contract is the one
// that the handling of the first call must show; empty for any.
func judgeDetail(s *client.EntryDetail, listed bool, contract string) []string {
	if s == nil {
		return []string{"LOST: the ledger has no entry"}
	}
	wrong := judgeTimeline(*s)
	shown, allowed, accepted := "", true, 0
	for _, event := range s.Timeline {
		call := event.Kind == client.TimelineEventKindAttempt
		switch {
		case call && !allowed:
			wrong = append(wrong, "DOUBLED: it was called again after a call that may have been accepted, and nothing allowed it: "+event.Text)
		case call && event.Outcome == client.TimelineEventOutcomeAccepted:
			accepted++
		}
		if call && event.Outcome == client.TimelineEventOutcomeUnknown || event.Kind == client.TimelineEventKindLeaseExpired {
			allowed = event.Reason == reasonRepeatable
			shown = contractShown(event)
		}
		if event.Reason == reasonRiskTaken {
			wrong = append(wrong, "DOUBLED: the type's policy sends again what may have been accepted (on_unknown: resend)")
		}
	}
	if accepted > 1 {
		wrong = append(wrong, fmt.Sprintf("DOUBLED: it was accepted %s", timesText(accepted)))
	}
	switch {
	case shown == "":
		// reported by judgeTimeline
	case contract == Idempotent && shown != Idempotent, contract != "" && contract != Idempotent && shown == Idempotent:
		wrong = append(wrong, fmt.Sprintf("UNEXPLAINED: the provider's contract is not %s", contract))
	}
	switch e := s.Entry; {
	case e.State == client.StateSent:
	case e.State == client.StateUnknown && listed:
	case e.State == client.StateUnknown:
		wrong = append(wrong, "LOST: it may have been sent, and it is not listed for an operator")
	case e.State == client.StateWaiting, e.State == client.StateSending:
		wrong = append(wrong, fmt.Sprintf("UNSETTLED: it is still %s (%s)", e.State, e.Reason))
	default:
		wrong = append(wrong, fmt.Sprintf("LOST: the provider accepted it, and its state is %s (%s)", e.State, e.Reason))
	}
	return wrong
}

// contractShown is the contract that the reason of an event shows: only an idempotent one allows a repeat.
func contractShown(event client.TimelineEvent) string {
	if event.Reason == reasonRepeatable {
		return Idempotent
	}
	return Blind
}
