package provider

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Provider carries one shipment at a time.
type Provider interface {
	// Send makes at most one call, ends with ctx, and tells what the call proved. It is safe for
	// concurrent use.
	Send(ctx context.Context, s ledger.Shipment) ledger.Outcome
	// Route names the provider, its contract, and the fingerprint of both with account and endpoint.
	Route() ledger.Route
}

// Asker is a provider with a lookup contract.
type Asker interface {
	// Ask asks whether the provider took what was sent under a key, ends with ctx, and tells what it said
	// with its evidence. It changes nothing there.
	Ask(ctx context.Context, sendKey string) (ledger.Finding, ledger.Outcome)
}

// Fingerprint is what makes two configurations the same provider: hex SHA-256 over the length-prefixed
// parts, by custom kind, account, endpoint, contract and version of the request's shape. Secrets are
// left out, so that they can be changed in the middle of an entry's retries.
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

// ContractWord is a contract as a part of a fingerprint.
func ContractWord(c ledger.Contract) string {
	if c.Kind == ledger.Idempotent {
		return c.Kind.String() + " " + c.Window.String()
	}
	return c.Kind.String()
}
