package cli

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

// sandboxRecipient makes a sandbox take the message and lose its answer. Its domain belongs to nobody (RFC
// 2606), should the channel lead to a real provider after all.
const sandboxRecipient = "timeout-after-accept@rehearsal.invalid"

// stagingPatience is how long a running gateway is waited for: its lease and backoff are not known here.
const stagingPatience = 3 * time.Minute

// Staging walks the dangerous path through a gateway that is running already, and ends no process.
type Staging struct {
	URL           string
	Token         string // of role operator
	ProducerToken string // asks over REST, where there is no Source
	Source        string // a push source of format plain, and its bearer token
	SourceToken   string
	Channel, Type string
	Contract      string // what is expected of the sandbox; empty to take it as it shows
	Out           io.Writer
	Progress      io.Writer
}

// Run walks, tells and judges, as [Rehearsal.Run] does.
func (s Staging) Run(ctx context.Context) error {
	asks, err := openDesk(s.URL, s.Token, direct(time.Minute))
	if err != nil {
		return err
	}
	v := &visit{Staging: s, desk: asks, teller: &teller{out: s.Out, progress: s.Progress}}
	v.reminder = "rehearsal-" + strings.ToLower(rand.Text()[:10])
	if err := v.desk.operates(ctx); ctx.Err() != nil {
		return errEnded
	} else if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{v.deliverFirst, v.redeliver, v.decide, v.deliverAgain} {
		if err := step(ctx); ctx.Err() != nil {
			return errEnded
		} else if err != nil {
			return err
		}
	}
	v.step("What the ledger knows, and support reads.")
	v.timeline(v.story)
	findings := judgeStory(v.story, v.listed, s.Contract)
	v.verdict(findings, func() string { return "the timeline tells of one send" })
	more, err := v.redriveTwice(ctx)
	switch {
	case ctx.Err() != nil:
		return errEnded
	case err != nil:
		return err
	case len(findings)+len(more) > 0:
		return ErrWrong
	}
	return nil
}

// visit is one walk through a running gateway.
type visit struct {
	Staging
	*teller
	desk     *desk
	reminder string
	body     client.Reminder
	story    *client.Story
	listed   bool
}

func (v *visit) deliverFirst(ctx context.Context) error {
	now := time.Now().UTC()
	v.body = client.Reminder{
		ReminderID: v.reminder, Type: v.Type, Channel: v.Channel, To: sandboxRecipient, CreatedAt: now, Deadline: now.Add(10 * time.Minute),
		Content: map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."},
	}
	v.title("through the gateway at " + v.URL)
	v.line("left out", "the end of the process; -config rehearses that")
	v.line("provider", "must be a sandbox: the recipient is %s", sandboxRecipient)
	v.step("A reservation runs out at %s, and its reminder is delivered; the provider takes it, and its answer is lost.",
		v.body.Deadline.Format(time.TimeOnly))
	return v.bring(ctx, v.body)
}

// bring delivers a reminder once, by push or over REST.
func (v *visit) bring(ctx context.Context, body client.Reminder) error {
	if v.Source == "" {
		d, err := v.request(ctx, body)
		if err != nil {
			return err
		}
		v.line("caller", "is answered %d: %s (%s)", d.Status, d.State, d.Reason)
		return nil
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	push := &broker{client: direct(time.Minute), source: v.Source, token: v.SourceToken, message: body.ReminderID + "-m1", body: raw}
	d, err := push.deliver(ctx, v.URL)
	if err != nil {
		return err
	}
	v.line("broker", "is answered %s", d)
	return nil
}

// request asks over REST.
func (v *visit) request(ctx context.Context, body client.Reminder) (delivery, error) {
	asks, err := openDesk(v.URL, v.ProducerToken, direct(time.Minute))
	if err != nil {
		return delivery{}, err
	}
	answer, err := asks.client.RequestReminderWithResponse(ctx, body)
	if err != nil {
		return delivery{}, fmt.Errorf("rehearse: ask for the reminder: %w", err)
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
	return d, fmt.Errorf("rehearse: ask for the reminder: %s %s", answer.Status(), answer.Body)
}

// redeliver brings it again until it has come to rest, or to where only a person can help.
func (v *visit) redeliver(ctx context.Context) error {
	v.step("It is delivered again, until the ledger has come to rest.")
	for until := time.Now().Add(stagingPatience); ; {
		if err := v.bring(ctx, v.body); err != nil {
			return err
		}
		if err := v.read(ctx); err != nil {
			return err
		}
		resting := v.story != nil && v.story.Entry.State != client.StateSending && v.story.Entry.State != client.StateWaiting
		if resting || time.Now().After(until) {
			return nil
		}
		v.wait(2*time.Second, "the ledger is not done with it")
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}

// decide settles what waits for a person, where the token is an operator's.
func (v *visit) decide(ctx context.Context) error {
	if v.story == nil || v.story.Entry.State != client.StateUnknown {
		return nil
	}
	v.step("Nobody may repeat it: it waits for a decision.")
	e := v.story.Entry
	whom, err := v.desk.waitsFor(ctx, e.ID)
	v.listed = whom != ""
	if !v.listed {
		v.line("person", "does not find it among what is to be decided%s", because(err))
		return ctx.Err()
	}
	v.line("person", "finds it listed: %s (%s), waits for a %s", e.State, e.Reason, whom)
	if err := v.desk.resolve(ctx, e, "rehearsal: the sandbox takes whatever is sent to its own recipient", ""); err != nil {
		v.line("person", "leaves it to an operator%s", because(err))
		return ctx.Err()
	}
	v.line("person", "resolves: sent")
	return nil
}

func (v *visit) deliverAgain(ctx context.Context) error {
	v.step("And once more.")
	if err := v.bring(ctx, v.body); err != nil {
		return err
	}
	return v.read(ctx)
}

func (v *visit) read(ctx context.Context) (err error) {
	v.story, err = v.desk.story(ctx, v.reminder)
	return err
}

// judgeStory judges by the timeline alone: what the provider really got is not seen from here. contract is
// what the first call's outcome must have been met with; empty for any.
func judgeStory(s *client.Story, listed bool, contract string) []string {
	if s == nil {
		return []string{"LOST: the ledger holds nothing"}
	}
	wrong := unexplained(*s)
	met, allowed, accepted := "", true, 0
	for _, l := range s.Timeline {
		call := l.Kind == client.LineKindAttempt
		switch {
		case call && !allowed:
			wrong = append(wrong, "DOUBLED: it was called again after a call that may have been accepted, and nothing allowed it: "+l.Text)
		case call && l.Outcome == client.LineOutcomeAccepted:
			accepted++
		}
		if call && l.Outcome == client.LineOutcomeUnknown || l.Kind == client.LineKindLapse {
			allowed = l.Reason == reasonRepeatable
			met = contractShown(l)
		}
		if l.Reason == reasonRiskTaken {
			wrong = append(wrong, "DOUBLED: the type's policy chose to send again what may have been accepted (on_unknown: resend)")
		}
	}
	if accepted > 1 {
		wrong = append(wrong, fmt.Sprintf("DOUBLED: it was accepted %s", times(accepted)))
	}
	switch {
	case met == "":
		// told by unexplained
	case contract == Idempotent && met != Idempotent, contract != "" && contract != Idempotent && met == Idempotent:
		wrong = append(wrong, fmt.Sprintf("UNEXPLAINED: the provider's contract is not %s", contract))
	}
	switch e := s.Entry; {
	case e.State == client.StateSent:
	case e.State == client.StateUnknown && listed:
	case e.State == client.StateUnknown:
		wrong = append(wrong, "LOST: it may have been sent, and it is not listed for a person")
	case e.State == client.StateWaiting, e.State == client.StateSending:
		wrong = append(wrong, fmt.Sprintf("UNSETTLED: it is still %s (%s)", e.State, e.Reason))
	default:
		wrong = append(wrong, fmt.Sprintf("LOST: the provider took it, and the ledger says %s (%s)", e.State, e.Reason))
	}
	return wrong
}

// contractShown is the contract that a line's reason shows: a repeat is harmless under one alone.
func contractShown(l client.Line) string {
	if l.Reason == reasonRepeatable {
		return Idempotent
	}
	return Blind
}
