package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// desk asks a gateway what it knows, as support does, and decides, as an operator does.
type desk struct{ client *client.ClientWithResponses }

func openDesk(gateway, token string, through *http.Client) (*desk, error) {
	asks, err := client.NewClientWithResponses(gateway, client.WithToken(token), client.WithHTTPClient(through))
	if err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	return &desk{asks}, nil
}

// story is what the ledger holds under a reminder's id; nil when it holds nothing.
func (d *desk) story(ctx context.Context, reminder string) (*client.Story, error) {
	found, err := d.client.GetReminderWithResponse(ctx, reminder)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rehearse: ask for the reminder: %w", err)
	case found.StatusCode() == http.StatusNotFound:
		return nil, nil
	case found.JSON200 == nil || len(found.JSON200.Items) != 1:
		return nil, fmt.Errorf("rehearse: ask for the reminder: %s %s", found.Status(), found.Body)
	}
	told, err := d.client.GetEntryWithResponse(ctx, found.JSON200.Items[0].ID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rehearse: ask for its story: %w", err)
	case told.JSON200 == nil:
		return nil, fmt.Errorf("rehearse: ask for its story: %s %s", told.Status(), told.Body)
	}
	return told.JSON200, nil
}

// waitsFor tells whom an entry waits for among what may have been sent; empty where it is not listed.
func (d *desk) waitsFor(ctx context.Context, id string) (client.CaseWaitsFor, error) {
	for params := new(client.ListReconciliationParams); ; {
		page, err := d.client.ListReconciliationWithResponse(ctx, params)
		switch {
		case err != nil:
			return "", fmt.Errorf("rehearse: list what is undecided: %w", err)
		case page.JSON200 == nil:
			return "", fmt.Errorf("rehearse: list what is undecided: %s %s", page.Status(), page.Body)
		}
		for _, c := range page.JSON200.Items {
			if c.Entry.ID == id {
				return c.WaitsFor, nil
			}
		}
		if page.JSON200.Next == "" {
			return "", nil
		}
		params.Cursor = &page.JSON200.Next
	}
}

// ask has the providers asked now what became of what may have been sent.
func (d *desk) ask(ctx context.Context) error {
	run, err := d.client.StartReconciliationWithResponse(ctx, client.RunRequest{Reason: "rehearsal: not to wait for the schedule"})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: start a run: %w", err)
	case run.JSON202 == nil:
		return fmt.Errorf("rehearse: start a run: %s %s", run.Status(), run.Body)
	}
	return nil
}

// resolve says, as a person, that what was seen had been sent.
func (d *desk) resolve(ctx context.Context, seen client.Entry, reason, receipt string) error {
	decided, err := d.client.ResolveEntryWithResponse(ctx, seen.ID, client.Resolution{
		Verdict: client.ResolutionVerdictSent, Reason: reason, Version: seen.Version, Receipt: receipt,
	})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: resolve: %w", err)
	case decided.JSON200 == nil:
		return fmt.Errorf("rehearse: resolve: %s %s", decided.Status(), decided.Body)
	}
	return nil
}

// preview is what would become of a batch.
func (d *desk) preview(ctx context.Context, ask client.RedriveRequest) (client.RedriveReport, error) {
	ask.DryRun = true
	told, err := d.client.StartRedriveWithResponse(ctx, new(client.StartRedriveParams), ask)
	switch {
	case err != nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: preview: %w", err)
	case told.JSON200 == nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: preview: %s %s", told.Status(), told.Body)
	}
	return told.JSON200.AsRedriveReport()
}

// redrive asks for a batch under a key; laidOut tells whether it was laid out by this request.
func (d *desk) redrive(ctx context.Context, key string, ask client.RedriveRequest) (r client.Redrive, laidOut bool, err error) {
	told, err := d.client.StartRedriveWithResponse(ctx, &client.StartRedriveParams{IdempotencyKey: &key}, ask)
	switch {
	case err != nil:
		return r, false, fmt.Errorf("rehearse: redrive: %w", err)
	case told.JSON202 != nil:
		return *told.JSON202, true, nil
	case told.JSON200 == nil:
		return r, false, fmt.Errorf("rehearse: redrive: %s %s", told.Status(), told.Body)
	}
	r, err = told.JSON200.AsRedrive()
	return r, false, err
}

// report is how a redrive goes.
func (d *desk) report(ctx context.Context, id string) (client.RedriveReport, error) {
	told, err := d.client.GetRedriveWithResponse(ctx, id)
	switch {
	case err != nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: ask for the redrive: %w", err)
	case told.JSON200 == nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: ask for the redrive: %s %s", told.Status(), told.Body)
	}
	return *told.JSON200, nil
}

// ends waits for a redrive to end, and for what it put to work to come to rest.
func (d *desk) ends(ctx context.Context, id string, within time.Duration) (client.RedriveReport, error) {
	for until := time.Now().Add(within); ; {
		report, err := d.report(ctx, id)
		resting := report.Redrive.State != client.RedriveStateRunning && report.Tally.Pending == 0
		if err != nil || resting || time.Now().After(until) {
			return report, err // the verdict minds
		}
		if err := pause(ctx, glance); err != nil {
			return report, err
		}
	}
}

// discard takes a dead letter off the lists.
func (d *desk) discard(ctx context.Context, seen client.Entry) error {
	done, err := d.client.DiscardDeadLetterWithResponse(ctx, seen.ID, client.DiscardRequest{
		Reason: "rehearsal: it has served its purpose", Version: seen.Version,
	})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: discard: %w", err)
	case done.JSON200 == nil:
		return fmt.Errorf("rehearse: discard: %s %s", done.Status(), done.Body)
	}
	return nil
}

// operates tells why a token may not do what an operator does; nil where it may.
func (d *desk) operates(ctx context.Context) error {
	one := 1
	audit, err := d.client.ListAuditWithResponse(ctx, &client.ListAuditParams{Limit: &one})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: ask what the token may: %w", err)
	case audit.StatusCode() == http.StatusForbidden:
		return errors.New("rehearse: -token is of a role that may not redrive; give one of role operator, in -token or in $SENDONCE_TOKEN")
	case audit.JSON200 == nil:
		return fmt.Errorf("rehearse: ask what -token may: %s %s", audit.Status(), audit.Body)
	}
	return nil
}
