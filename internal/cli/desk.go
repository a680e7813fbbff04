package cli

import (
	"context"
	"fmt"
	"net/http"

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
