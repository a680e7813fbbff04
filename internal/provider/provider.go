package provider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Provider sends shipments, one per call.
type Provider interface {
	// Send makes at most one request, returns when ctx ends, and reports what the request proved. It is
	// safe for concurrent use.
	Send(ctx context.Context, s ledger.Shipment) ledger.Outcome
	// Route returns the provider's name, its contract, and a fingerprint over contract, account and endpoint.
	Route() ledger.Route
}

// Looker is a provider that supports lookups.
type Looker interface {
	// Lookup asks whether the provider accepted the message sent under sendKey. It returns the result with
	// the response's details, returns when ctx ends, and changes nothing at the provider.
	Lookup(ctx context.Context, sendKey string) (ledger.LookupResult, ledger.Outcome)
}

// Fingerprint identifies a provider configuration: two configurations with the same fingerprint are the same
// provider. It is the hex SHA-256 of the length-prefixed parts, by convention kind, account, endpoint, contract
// and the version of the request format. Secrets are left out, so that they can be rotated while an entry is
// being retried.
func Fingerprint(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ContractPart formats a contract as a part of a fingerprint.
func ContractPart(c ledger.Contract) string {
	if c.Kind == ledger.ContractIdempotent {
		return c.Kind.String() + " " + c.Window.String()
	}
	return c.Kind.String()
}
