package pubsub

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sendonce/sendonce/internal/ingest"
)

// How long keys are used, and limits on fetching them.
const (
	keysFresh    = time.Hour       // after this age a refresh is attempted
	keysUsable   = 24 * time.Hour  // maximum age while refreshes fail; a withdrawn key must expire
	keysPause    = time.Minute     // minimum time between two fetches, whatever triggers them
	fetchTimeout = 5 * time.Second // within a subscription's ack deadline of 10 s
	maxKeySet    = 64 << 10        // bytes
	minModulus   = 2048            // bits, RFC 7518 section 3.3
)

// keySet holds an issuer's keys. An unknown key id triggers a fetch, since issuers rotate keys, but at most once a
// minute, since anyone can invent key ids.
type keySet struct {
	url     string
	client  *http.Client
	now     func() time.Time
	current atomic.Pointer[keys]

	fetching sync.Mutex
	tried    time.Time // guarded by fetching
}

// keys are immutable once stored in [keySet].current.
type keys struct {
	byID    map[string]*rsa.PublicKey
	fetched time.Time
	err     error // error of the last fetch
}

// usable returns the key with this id, or nil if there is none or the keys are too old.
func (k *keys) usable(id string, now time.Time) *rsa.PublicKey {
	if now.Sub(k.fetched) >= keysUsable {
		return nil
	}
	if only := k.byID[""]; only != nil {
		return only
	}
	return k.byID[id]
}

func newKeySet(address string, client *http.Client, now func() time.Time) (*keySet, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, errors.New("pubsub: the URL of the keys must be https: who can change the keys in transit can push")
	}
	c := *client
	if c.Timeout <= 0 || c.Timeout > fetchTimeout {
		c.Timeout = fetchTimeout
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &keySet{url: address, client: &c, now: now}
	s.current.Store(&keys{err: errors.New("pubsub: the keys have not been fetched yet")})
	return s, nil
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// find returns the key with this id. The error is [ingest.ErrUnauthenticated] if there is no such key, and wraps
// [ingest.ErrUnavailable] if that cannot be determined.
func (s *keySet) find(ctx context.Context, id string) (*rsa.PublicKey, error) {
	now := s.now()
	current := s.current.Load()
	key := current.usable(id, now)
	if key == nil || now.Sub(current.fetched) >= keysFresh {
		current = s.refresh(ctx, key != nil, now)
		key = current.usable(id, now)
	}
	switch {
	case key != nil:
		return key, nil
	case current.err != nil:
		return nil, fmt.Errorf("%w: %w", ingest.ErrUnavailable, current.err)
	}
	return nil, ingest.ErrUnauthenticated
}

// refresh fetches the keys unless a fetch was attempted within keysPause. A request that already has a usable key does
// not wait for a fetch by another request.
func (s *keySet) refresh(ctx context.Context, haveKey bool, now time.Time) *keys {
	if !s.fetching.TryLock() {
		if haveKey {
			return s.current.Load()
		}
		s.fetching.Lock()
	}
	defer s.fetching.Unlock()
	if !s.tried.IsZero() && now.Sub(s.tried) < keysPause {
		return s.current.Load()
	}
	s.tried = now
	next := *s.current.Load()
	// Do not use the request's cancellation: an unauthenticated sender that closes its connection would use up the
	// one fetch of this minute.
	byID, err := s.fetch(context.WithoutCancel(ctx))
	if next.err = err; err == nil {
		next.byID, next.fetched = byID, now
	}
	s.current.Store(&next)
	return &next
}

func (s *keySet) fetch(ctx context.Context) (map[string]*rsa.PublicKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("pubsub: the URL of the keys responded with %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil || len(body) > maxKeySet {
		return nil, fmt.Errorf("pubsub: the keys could not be read, or exceed %d bytes: %w", maxKeySet, err)
	}
	return readKeys(body)
}

// readKeys returns the keys of a JSON Web Key Set (RFC 7517 section 5) that can verify RS256, and ignores the others.
// A key without an id counts if it is the only one of the set, and then has the id "": it verifies any token, since its
// signature decides. A set without such a key is an error, so that it does not replace a set that has one.
func readKeys(body []byte) (map[string]*rsa.PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, err
	}
	byID := make(map[string]*rsa.PublicKey)
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if json.Unmarshal(raw, &k) != nil || k.KeyID == "" && len(set.Keys) > 1 ||
			k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != string(jose.RS256) {
			continue
		}
		if public, ok := k.Key.(*rsa.PublicKey); ok && public.N.BitLen() >= minModulus {
			byID[k.KeyID] = public
		}
	}
	if len(byID) == 0 {
		return nil, errors.New("pubsub: the key set has no RS256 key")
	}
	return byID, nil
}
