package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/client"
)

// adminClient calls the admin API of a gateway, as support and operators do.
type adminClient struct{ client *client.ClientWithResponses }

func newAdminClient(gateway, token string, httpClient *http.Client) (*adminClient, error) {
	api, err := client.NewClientWithResponses(gateway, client.WithToken(token), client.WithHTTPClient(httpClient))
	if err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	return &adminClient{api}, nil
}

// detail returns the entry of a reminder with its timeline; nil if there is none.
func (a *adminClient) detail(ctx context.Context, reminder string) (*client.EntryDetail, error) {
	resp, err := a.client.GetReminderWithResponse(ctx, reminder)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rehearse: read the reminder: %w", err)
	case resp.StatusCode() == http.StatusNotFound:
		return nil, nil
	case resp.JSON200 == nil || len(resp.JSON200.Items) != 1:
		return nil, fmt.Errorf("rehearse: read the reminder: %s %s", resp.Status(), resp.Body)
	}
	entry, err := a.client.GetEntryWithResponse(ctx, resp.JSON200.Items[0].ID)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rehearse: read the entry: %w", err)
	case entry.JSON200 == nil:
		return nil, fmt.Errorf("rehearse: read the entry: %s %s", entry.Status(), entry.Body)
	}
	return entry.JSON200, nil
}

// waitsFor returns what an unresolved entry waits for; empty if it is not listed.
func (a *adminClient) waitsFor(ctx context.Context, id string) (client.UnresolvedEntryWaitsFor, error) {
	for params := new(client.ListReconciliationParams); ; {
		page, err := a.client.ListReconciliationWithResponse(ctx, params)
		switch {
		case err != nil:
			return "", fmt.Errorf("rehearse: list unresolved entries: %w", err)
		case page.JSON200 == nil:
			return "", fmt.Errorf("rehearse: list unresolved entries: %s %s", page.Status(), page.Body)
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

// startSweep starts a sweep, which looks up unknown entries now.
func (a *adminClient) startSweep(ctx context.Context) error {
	started, err := a.client.StartReconciliationWithResponse(ctx, client.RunRequest{Reason: "rehearsal: do not wait for the schedule"})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: start a sweep: %w", err)
	case started.JSON202 == nil:
		return fmt.Errorf("rehearse: start a sweep: %s %s", started.Status(), started.Body)
	}
	return nil
}

// resolve resolves an entry as sent, as an operator.
func (a *adminClient) resolve(ctx context.Context, e client.Entry, reason, receipt string) error {
	resp, err := a.client.ResolveEntryWithResponse(ctx, e.ID, client.Resolution{
		Verdict: client.ResolutionVerdictSent, Reason: reason, Version: e.Version, Receipt: receipt,
	})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: resolve: %w", err)
	case resp.JSON200 == nil:
		return fmt.Errorf("rehearse: resolve: %s %s", resp.Status(), resp.Body)
	}
	return nil
}

// preview returns what a redrive would do.
func (a *adminClient) preview(ctx context.Context, request client.RedriveRequest) (client.RedriveReport, error) {
	request.DryRun = true
	resp, err := a.client.StartRedriveWithResponse(ctx, new(client.StartRedriveParams), request)
	switch {
	case err != nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: preview: %w", err)
	case resp.JSON200 == nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: preview: %s %s", resp.Status(), resp.Body)
	}
	return resp.JSON200.AsRedriveReport()
}

// redrive starts a redrive with an idempotency key, and reports whether this request created it.
func (a *adminClient) redrive(ctx context.Context, key string, request client.RedriveRequest) (r client.Redrive, created bool, err error) {
	resp, err := a.client.StartRedriveWithResponse(ctx, &client.StartRedriveParams{IdempotencyKey: &key}, request)
	switch {
	case err != nil:
		return r, false, fmt.Errorf("rehearse: redrive: %w", err)
	case resp.JSON202 != nil:
		return *resp.JSON202, true, nil
	case resp.JSON200 == nil:
		return r, false, fmt.Errorf("rehearse: redrive: %s %s", resp.Status(), resp.Body)
	}
	r, err = resp.JSON200.AsRedrive()
	return r, false, err
}

// report returns the report of a redrive.
func (a *adminClient) report(ctx context.Context, id string) (client.RedriveReport, error) {
	resp, err := a.client.GetRedriveWithResponse(ctx, id)
	switch {
	case err != nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: read the redrive: %w", err)
	case resp.JSON200 == nil:
		return client.RedriveReport{}, fmt.Errorf("rehearse: read the redrive: %s %s", resp.Status(), resp.Body)
	}
	return *resp.JSON200, nil
}

// awaitRedrive waits until a redrive has ended and its entries are settled.
func (a *adminClient) awaitRedrive(ctx context.Context, id string, within time.Duration) (client.RedriveReport, error) {
	for until := time.Now().Add(within); ; {
		report, err := a.report(ctx, id)
		settled := report.Redrive.State != client.RedriveStateRunning && report.Counts.Pending == 0
		if err != nil || settled || time.Now().After(until) {
			return report, err // reported by the verdict
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return report, err
		}
	}
}

// discard discards a dead letter.
func (a *adminClient) discard(ctx context.Context, e client.Entry) error {
	resp, err := a.client.DiscardDeadLetterWithResponse(ctx, e.ID, client.DiscardRequest{
		Reason: "rehearsal: it has served its purpose", Version: e.Version,
	})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: discard: %w", err)
	case resp.JSON200 == nil:
		return fmt.Errorf("rehearse: discard: %s %s", resp.Status(), resp.Body)
	}
	return nil
}

// checkOperator returns an error if the token has not the role operator.
func (a *adminClient) checkOperator(ctx context.Context) error {
	one := 1
	audit, err := a.client.ListAuditWithResponse(ctx, &client.ListAuditParams{Limit: &one})
	switch {
	case err != nil:
		return fmt.Errorf("rehearse: check the role of -token: %w", err)
	case audit.StatusCode() == http.StatusForbidden:
		return errors.New("rehearse: -token is of a role that may not redrive; give one of role operator, in -token or in $SENDONCE_TOKEN")
	case audit.JSON200 == nil:
		return fmt.Errorf("rehearse: check the role of -token: %s %s", audit.Status(), audit.Body)
	}
	return nil
}
