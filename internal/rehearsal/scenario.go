package rehearsal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// crash delivers the reminder; the provider accepts it, and the process ends before it gets the answer.
func (sc *scenario) crash(ctx context.Context) error {
	now := time.Now().UTC()
	deadline := now.Add(max(10*time.Minute, 10*sc.setting.Lease))
	sc.step("A reservation runs out at %s, and its reminder is delivered.", deadline.Format(time.TimeOnly))
	body, err := json.Marshal(client.Reminder{
		ReminderID: sc.reminder, Type: sc.history.typeName, Channel: sc.config.name, To: "rehearsal@rehearsal.invalid",
		Content:   map[string]any{"subject": "A rehearsal", "text": "Your seat is about to expire."},
		CreatedAt: now, Deadline: deadline,
	})
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	sc.broker = &broker{
		client: directClient(sc.setting.Lease + 30*time.Second), source: sc.config.name, token: sc.config.brokerToken,
		message: sc.config.name + "-m1", body: body,
	}
	sc.line("broker", "pushes message %s, for the 1st time", sc.broker.message)
	type answer struct {
		delivery
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		d, err := sc.broker.deliver(ctx, sc.gateway.url)
		answers <- answer{d, err}
	}()
	if err := sc.provider.awaitCall(ctx, sc.timeout()); err != nil {
		return fmt.Errorf("%w\n%s", err, sc.gateway.logTail())
	}
	calls, _ := sc.provider.recorded()
	sc.line("provider", "is called with key %s…: accepts the message, receipt %s, and delays its answer", calls[0].Key[:12], calls[0].Receipt)

	sc.step("The process ends before it gets the answer, stores it, or acks.")
	if err := sc.gateway.kill(); err != nil {
		return err
	}
	sc.line("gateway", "process %d ended with kill -9", sc.gateway.cmd.Process.Pid)
	first := <-answers
	if first.err == nil {
		sc.recordDelivery(first.delivery)
	}
	return first.err
}

// restart starts another process on the same ledger, and the broker redelivers until it gets an ack.
func (sc *scenario) restart(ctx context.Context) error {
	sc.step("Another process starts on the same ledger, and the broker redelivers.")
	if err := sc.serve(ctx); err != nil {
		return err
	}
	sc.line("gateway", "process %d serves", sc.gateway.cmd.Process.Pid)
	return sc.redeliver(ctx)
}

// redeliver delivers the message until it is acked, at the interval that the gateway asks for.
func (sc *scenario) redeliver(ctx context.Context) error {
	for until := time.Now().Add(sc.timeout()); ; {
		d, err := sc.broker.deliver(ctx, sc.gateway.url)
		if err != nil {
			return err
		}
		sc.recordDelivery(d)
		if d.acked() || time.Now().After(until) {
			return nil // reported by the verdict
		}
		wait := max(d.RetryAfter, time.Second)
		sc.wait(wait, "the broker holds the message back")
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// recordDelivery records and prints a delivery and the calls that it caused.
func (sc *scenario) recordDelivery(d delivery) {
	sc.history.deliveries = append(sc.history.deliveries, d)
	sc.line("broker", "delivery %d is answered %s", len(sc.history.deliveries), d)
	if len(sc.history.deliveries) > 1 {
		sc.recordCalls()
	}
}

// recordCalls records and prints what the provider received since the last time.
func (sc *scenario) recordCalls() {
	calls, lookups := sc.provider.recorded()
	for _, c := range calls[max(1, len(sc.history.calls)):] {
		switch {
		case c.Accepted:
			sc.line("provider", "is called with key %s…: accepts a SECOND message, receipt %s", c.Key[:min(12, len(c.Key))], c.Receipt)
		default:
			sc.line("provider", "is called with key %s… again: recognises it, accepts no second message, answers with receipt %s", c.Key[:min(12, len(c.Key))], c.Receipt)
		}
	}
	if lookups > sc.history.lookups {
		sc.line("provider", "gets a lookup of the key: accepted")
	}
	sc.history.calls, sc.history.lookups = calls, lookups
}

// settle settles an entry that a repeat could not: by a lookup, or by an operator.
func (sc *scenario) settle(ctx context.Context) error {
	// The delivery is also acked if the ledger has taken over the entry and is not done yet.
	if err := sc.awaitState(ctx, client.StateSending, client.StateWaiting); err != nil || !sc.isUnknown() {
		return err
	}
	if sc.history.Contract == Lookup {
		sc.step("A repeat is not allowed: the ledger looks the result up at the provider.")
		if !sc.RealTime {
			sc.line("operator", "starts a sweep instead of waiting for the schedule%s", causeOf(sc.adminClient.startSweep(ctx)))
		}
		sc.wait(sc.timeout(), "at most, until the ledger looks it up")
		if err := sc.awaitState(ctx, client.StateUnknown); err != nil || !sc.isUnknown() {
			return err
		}
	}
	sc.step("A repeat is not allowed and a lookup is not possible: it waits for an operator, and the broker redelivers.")
	if err := sc.redeliver(ctx); err != nil {
		return err
	}
	return sc.decide(ctx)
}

// awaitState waits until the entry has left these states.
func (sc *scenario) awaitState(ctx context.Context, states ...client.State) error {
	defer sc.recordCalls()
	for until := time.Now().Add(sc.timeout()); ; {
		if err := sc.readDetail(ctx); err != nil {
			return err
		}
		detail := sc.history.detail
		if detail == nil || !slices.Contains(states, detail.Entry.State) || time.Now().After(until) {
			return nil // reported by the verdict
		}
		if err := sleep(ctx, time.Second/4); err != nil {
			return err
		}
	}
}

func (sc *scenario) isUnknown() bool {
	return sc.history.detail != nil && sc.history.detail.Entry.State == client.StateUnknown
}

// decide acts as an operator: finds the entry listed, checks the provider's record, and resolves it.
func (sc *scenario) decide(ctx context.Context) error {
	e := sc.history.detail.Entry
	waitsFor, err := sc.adminClient.waitsFor(ctx, e.ID)
	sc.history.listed = waitsFor == client.UnresolvedEntryWaitsForOperator
	if !sc.history.listed {
		sc.line("operator", "does not find it among the unresolved entries%s", causeOf(err))
		return ctx.Err()
	}
	sc.line("operator", "finds it listed: %s (%s)", e.State, e.Reason)
	if err := sc.adminClient.resolve(ctx, e, "rehearsal: the provider's own record shows that it was accepted", sc.history.calls[0].Receipt); err != nil {
		sc.line("operator", "cannot resolve it%s", causeOf(err))
		return ctx.Err()
	}
	sc.history.resolved = true
	sc.line("operator", "finds the message in the provider's own record, and resolves: sent")
	return nil
}

// causeOf is the text of an error behind a colon; empty for nil.
func causeOf(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// deliverAgain delivers once more, as at-least-once delivery may.
func (sc *scenario) deliverAgain(ctx context.Context) error {
	sc.step("The ack is lost, so the broker redelivers once more.")
	return sc.redeliver(ctx)
}

// printResult prints the final entry.
func (sc *scenario) printResult(ctx context.Context) error {
	if err := sc.readDetail(ctx); err != nil {
		return err
	}
	sc.recordCalls()
	sc.step("The entry and its timeline, as support sees them.")
	sc.timeline(sc.history.detail)
	return nil
}

func (sc *scenario) readDetail(ctx context.Context) (err error) {
	sc.history.detail, err = sc.adminClient.detail(ctx, sc.reminder)
	return err
}
