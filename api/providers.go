package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// providers lists the providers with their status.
func (s *server) providers(w http.ResponseWriter, r *http.Request, _ Caller) {
	if faults := readParams(r.URL.RawQuery, nil); len(faults) > 0 {
		s.writeError(w, r, faults)
		return
	}
	statuses, err := s.Providers.Providers(r.Context())
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.ProviderList{Items: make([]wire.Provider, len(statuses))}
	for i, p := range statuses {
		list.Items[i] = wire.Provider{
			Name: p.Name, Contract: contractOf(p.Contract), Gate: gateOf(p.Gate, p.Open),
			Capacity: p.Capacity, InFlight: p.InFlight, Rate: p.Rate, Ready: p.Ready,
		}
	}
	writeJSON(w, http.StatusOK, list)
}

func contractOf(c ledger.Contract) wire.Contract {
	contract := wire.Contract{Kind: wire.ContractKind(c.Kind.String())}
	if c.Window > 0 {
		contract.Window = c.Window.String()
	}
	return contract
}

func gateOf(g ledger.Gate, open bool) wire.ProviderGate {
	until, _ := g.ClosedUntil.Fixed()
	return wire.ProviderGate{Paused: g.Paused, Open: open, ClosedUntil: until.UTC(), Class: wire.Class(g.Class), Actor: g.Actor}
}

// pause stops all calls to a provider.
func (s *server) pause(w http.ResponseWriter, r *http.Request, caller Caller) {
	s.setPaused(w, r, caller, ProviderPauser.Pause)
}

// resume allows calls to a provider again.
func (s *server) resume(w http.ResponseWriter, r *http.Request, caller Caller) {
	s.setPaused(w, r, caller, ProviderPauser.Resume)
}

// setPaused applies Pause or Resume of the [ProviderPauser].
func (s *server) setPaused(
	w http.ResponseWriter, r *http.Request, caller Caller,
	change func(ProviderPauser, context.Context, string, ledger.AuditEvent) (ledger.Gate, error),
) {
	audit, err := readReason(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	gate, err := change(s.Pauser, r.Context(), pathParam(r, "name"), audit)
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		s.writeError(w, r, errNoProvider)
	case err != nil:
		s.writeError(w, r, unavailable(err))
	default:
		writeJSON(w, http.StatusOK, gateOf(gate, gate.Status(s.Now()).Open))
	}
}
