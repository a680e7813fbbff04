package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// crash : the reminder is delivered, the provider takes it, and the process ends before it hears so.
func (w *walk) crash(ctx context.Context) error {
	now := time.Now().UTC()
	deadline := now.Add(max(10*time.Minute, 10*w.setting.Lease))
	w.step("A reservation runs out at %s, and its reminder is delivered.", deadline.Format(time.TimeOnly))
	body, err := json.Marshal(client.Reminder{
		ReminderID: w.reminder, Type: w.history.kind, Channel: w.run.name, To: "rehearsal@rehearsal.invalid",
		Content:   map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."},
		CreatedAt: now, Deadline: deadline,
	})
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	w.broker = &broker{
		client: direct(w.setting.Lease + 30*time.Second), source: w.run.name, token: w.run.brokerToken,
		message: w.run.name + "-m1", body: body,
	}
	w.line("broker", "pushes message %s, for the 1st time", w.broker.message)
	type answer struct {
		delivery
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		d, err := w.broker.deliver(ctx, w.gateway.url)
		answered <- answer{d, err}
	}()
	if err := w.provider.took(ctx, w.patience()); err != nil {
		return fmt.Errorf("%w\n%s", err, w.gateway.lastWords())
	}
	calls, _ := w.provider.record()
	w.line("provider", "is called under key %s…: takes the message, receipt %s, and keeps its answer back", calls[0].Key[:12], calls[0].Receipt)

	w.step("The process ends before it can hear the answer, write it down, or ack.")
	if err := w.gateway.kill(); err != nil {
		return err
	}
	w.line("gateway", "process %d ended with kill -9", w.gateway.cmd.Process.Pid)
	first := <-answered
	if first.err == nil {
		w.arrived(first.delivery)
	}
	return first.err
}

// comeBack : another process starts on the same ledger, and the broker redelivers until it is acked.
func (w *walk) comeBack(ctx context.Context) error {
	w.step("Another process starts on the same ledger, and the broker redelivers.")
	if err := w.serve(ctx); err != nil {
		return err
	}
	w.line("gateway", "process %d serves", w.gateway.cmd.Process.Pid)
	return w.redeliver(ctx)
}

// redeliver brings the message again until it is acked, at the pace that the gateway asks for.
func (w *walk) redeliver(ctx context.Context) error {
	for until := time.Now().Add(w.patience()); ; {
		d, err := w.broker.deliver(ctx, w.gateway.url)
		if err != nil {
			return err
		}
		w.arrived(d)
		if d.acked() || time.Now().After(until) {
			return nil // the verdict minds
		}
		wait := max(d.RetryAfter, time.Second)
		w.wait(wait, "the broker holds the message back")
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// arrived tells of a delivery and what it made the provider do.
func (w *walk) arrived(d delivery) {
	w.history.deliveries = append(w.history.deliveries, d)
	w.line("broker", "delivery %d is answered %s", len(w.history.deliveries), d)
	if len(w.history.deliveries) > 1 {
		w.seen()
	}
}

// seen tells what the provider got since it was last looked at.
func (w *walk) seen() {
	calls, asked := w.provider.record()
	for _, c := range calls[max(1, len(w.history.calls)):] {
		switch {
		case c.Taken:
			w.line("provider", "is called under key %s…: takes a SECOND message, receipt %s", c.Key[:min(12, len(c.Key))], c.Receipt)
		default:
			w.line("provider", "is called under key %s… again: recognises it, takes nothing, answers with receipt %s", c.Key[:min(12, len(c.Key))], c.Receipt)
		}
	}
	if asked > w.history.asked {
		w.line("provider", "is asked what became of the key: taken")
	}
	w.history.calls, w.history.asked = calls, asked
}

// settle : what no repeat could settle is asked about, or decided by a person.
func (w *walk) settle(ctx context.Context) error {
	// It is acked too where the ledger has taken it over, and has yet to finish.
	if err := w.rests(ctx, client.StateSending, client.StateWaiting); err != nil || !w.unknown() {
		return err
	}
	if w.history.Contract == Lookup {
		w.step("Nobody may repeat it: the provider is asked what became of it.")
		if !w.RealTime {
			w.line("person", "starts a run, not to wait for the schedule%s", because(w.desk.ask(ctx)))
		}
		w.wait(w.patience(), "at the longest, for the ledger to ask")
		if err := w.rests(ctx, client.StateUnknown); err != nil || !w.unknown() {
			return err
		}
	}
	w.step("Nobody may repeat it and nobody can be asked: it waits for a person, and the broker redelivers.")
	if err := w.redeliver(ctx); err != nil {
		return err
	}
	return w.decide(ctx)
}

// rests waits for the entry to leave these states.
func (w *walk) rests(ctx context.Context, leaves ...client.State) error {
	defer w.seen()
	for until := time.Now().Add(w.patience()); ; {
		if err := w.read(ctx); err != nil {
			return err
		}
		s := w.history.story
		if s == nil || !slices.Contains(leaves, s.Entry.State) || time.Now().After(until) {
			return nil // the verdict minds
		}
		if err := pause(ctx, time.Second/4); err != nil {
			return err
		}
	}
}

func (w *walk) unknown() bool {
	return w.history.story != nil && w.history.story.Entry.State == client.StateUnknown
}

// decide is what a person does: finds it listed, looks at the evidence, and settles it.
func (w *walk) decide(ctx context.Context) error {
	e := w.history.story.Entry
	whom, err := w.desk.waitsFor(ctx, e.ID)
	w.history.listed = whom == client.CaseWaitsForPerson
	if !w.history.listed {
		w.line("person", "does not find it among what is to be decided%s", because(err))
		return ctx.Err()
	}
	w.line("person", "finds it listed: %s (%s)", e.State, e.Reason)
	if err := w.desk.resolve(ctx, e, "rehearsal: the provider's own record shows that it was taken", w.history.calls[0].Receipt); err != nil {
		w.line("person", "cannot settle it%s", because(err))
		return ctx.Err()
	}
	w.history.resolved = true
	w.line("person", "finds the message in the provider's own record, and resolves: sent")
	return nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// again : at-least-once means that it may come once more.
func (w *walk) again(ctx context.Context) error {
	w.step("Its ack is lost on the way, so the broker redelivers once more.")
	return w.redeliver(ctx)
}

// look tells where it came to rest.
func (w *walk) look(ctx context.Context) error {
	if err := w.read(ctx); err != nil {
		return err
	}
	w.seen()
	w.step("What the ledger knows, and support reads.")
	w.timeline(w.history.story)
	return nil
}

func (w *walk) read(ctx context.Context) (err error) {
	w.history.story, err = w.desk.story(ctx, w.reminder)
	return err
}
