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

	"github.com/sendonce/sendonce/internal/broker"
)

// How long keys serve, and what asking for them may cost.
const (
	keysFresh    = time.Hour       // then a refresh is tried
	keysUsable   = 24 * time.Hour  // while refreshes fail; a withdrawn key must not live for ever
	keysPause    = time.Minute     // between two fetches, whatever asks for them
	fetchTimeout = 5 * time.Second // inside a subscription's ack deadline of 10 s
	maxKeySet    = 64 << 10        // bytes
	minModulus   = 2048            // bits, RFC 7518 section 3.3
)

// keySet holds an issuer's keys. A key id that nobody knows leads to a fetch, since issuers rotate; but
// strangers can make up ids, so there is at most one a minute.
type keySet struct {
	url     string
	client  *http.Client
	now     func() time.Time
	current atomic.Pointer[keys]

	fetching sync.Mutex
	tried    time.Time // under fetching
}

// keys are never changed once they are published.
type keys struct {
	byID    map[string]*rsa.PublicKey
	fetched time.Time
	err     error // why the last fetch did not bring them up to date
}

// usable is the key with this id, nil where there is none that still serves.
func (k *keys) usable(id string, now time.Time) *rsa.PublicKey {
	if now.Sub(k.fetched) >= keysUsable {
		return nil
	}
	return k.byID[id]
}

func newKeySet(address string, client *http.Client, now func() time.Time) (*keySet, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())) {
		return nil, errors.New("pubsub: the keys' URL must be https: whoever can change them on the way can push")
	}
	own := *client
	if own.Timeout <= 0 || own.Timeout > fetchTimeout {
		own.Timeout = fetchTimeout
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s := &keySet{url: address, client: &own, now: now}
	s.current.Store(&keys{err: errors.New("pubsub: the keys were not fetched yet")})
	return s, nil
}

func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// find is the key with this id: [broker.ErrUnauthenticated] when there is none, [broker.ErrUnavailable]
// when that can't be told.
func (s *keySet) find(ctx context.Context, id string) (*rsa.PublicKey, error) {
	now := s.now()
	known := s.current.Load()
	key := known.usable(id, now)
	if key == nil || now.Sub(known.fetched) >= keysFresh {
		known = s.refresh(ctx, key != nil, now)
		key = known.usable(id, now)
	}
	switch {
	case key != nil:
		return key, nil
	case known.err != nil:
		return nil, fmt.Errorf("%w: %w", broker.ErrUnavailable, known.err)
	}
	return nil, broker.ErrUnauthenticated
}

// refresh fetches the keys unless that was tried within the pause. Who has a key that still serves does
// not wait for another's fetch.
func (s *keySet) refresh(ctx context.Context, served bool, now time.Time) *keys {
	if !s.fetching.TryLock() {
		if served {
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
	// Not under the request's own context: a stranger that hangs up would spend the minute's fetch.
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
		return nil, fmt.Errorf("pubsub: the keys' URL answered %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxKeySet+1))
	if err != nil || len(body) > maxKeySet {
		return nil, fmt.Errorf("pubsub: the keys could not be read, or are over %d bytes: %w", maxKeySet, err)
	}
	return readKeys(body)
}

// readKeys takes what can verify RS256 out of a JSON Web Key Set (RFC 7517 section 5) and passes over
// the rest. A set without such a key is an error: it must not displace one that has some.
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
		if json.Unmarshal(raw, &k) != nil || k.KeyID == "" ||
			k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != string(jose.RS256) {
			continue
		}
		if public, ok := k.Key.(*rsa.PublicKey); ok && public.N.BitLen() >= minModulus {
			byID[k.KeyID] = public
		}
	}
	if len(byID) == 0 {
		return nil, errors.New("pubsub: the keys' URL has no RS256 key")
	}
	return byID, nil
}
