package pubsub_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/pubsub"
)

func TestKeys_UnknownKeyIDsFetchAtMostOncePerMinute(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	otherKey := newKey(t)
	forged := func(n int) string {
		return unsigned(map[string]any{"alg": "RS256", "kid": fmt.Sprint("unknown-", n)}, i.claims(),
			func(string) []byte { return otherKey.N.Bytes() })
	}
	for minute := 1; minute <= 3; minute++ {
		for n := range 1000 {
			if err := push(a, forged(n)); !errors.Is(err, ingest.ErrUnauthenticated) {
				t.Fatal(err)
			}
		}
		if i.fetches() != minute {
			t.Fatalf("%d fetches in %d minutes", i.fetches(), minute)
		}
		if err := push(a, i.token("k1", i.claims())); err != nil {
			t.Fatalf("a valid token among them: %v", err)
		}
		i.advance(time.Minute)
	}
}

func TestKeys_OnlyKeyOfSetNeedsNoID(t *testing.T) {
	i := newIssuer(t, "")
	a := i.authenticator()
	if err := push(a, i.signed(i.keys[""], map[string]any{}, i.claims())); err != nil {
		t.Errorf("a token without a key id: %v", err)
	}
	if err := push(a, i.signed(i.keys[""], map[string]any{"kid": "k7"}, i.claims())); err != nil {
		t.Errorf("a token with a key id: %v", err)
	}
	if err := push(a, i.signed(newKey(t), map[string]any{}, i.claims())); !errors.Is(err, ingest.ErrUnauthenticated) {
		t.Errorf("another key: %v", err)
	}
	two := newIssuer(t, "", "k1")
	if err := push(two.authenticator(), two.signed(two.keys[""], map[string]any{}, two.claims())); !errors.Is(err, ingest.ErrUnauthenticated) {
		t.Errorf("one of two keys: %v", err)
	}
}

func TestKeys_NewKeyIsFoundAndWithdrawnKeyDropped(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	old := i.token("k1", i.claims("exp", i.clock().Add(48*time.Hour).Unix()))
	if err := push(a, old); err != nil {
		t.Fatal(err)
	}
	i.keys = map[string]*rsa.PrivateKey{"k2": newKey(t)}
	i.advance(time.Minute)
	if err := push(a, i.token("k2", i.claims())); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if err := push(a, old); !errors.Is(err, ingest.ErrUnauthenticated) {
		t.Errorf("the withdrawn key: %v", err)
	}

	i.keys = map[string]*rsa.PrivateKey{}
	i.keys["k3"] = newKey(t)
	withdrawn := i.token("k3", i.claims("exp", i.clock().Add(48*time.Hour).Unix()))
	i.advance(time.Minute)
	if err := push(a, withdrawn); err != nil {
		t.Fatal(err)
	}
	i.keys = map[string]*rsa.PrivateKey{"k4": newKey(t)}
	i.advance(time.Hour)
	if err := push(a, withdrawn); !errors.Is(err, ingest.ErrUnauthenticated) {
		t.Errorf("an hour after it was withdrawn, without a request for another key: %v", err)
	}
}

func TestKeys_FailedFetchIsUnavailableNotUnauthenticated(t *testing.T) {
	whole := newIssuer(t, "k1").keySet()
	for name, respondFunc := range map[string]func(*http.Request) (*http.Response, error){
		"no connection": func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") },
		"an error":      func(*http.Request) (*http.Response, error) { return respond(500, whole), nil },
		"a redirect": func(*http.Request) (*http.Response, error) {
			r := respond(302, "")
			r.Header.Set("Location", "https://evil.example.test/jwks")
			return r, nil
		},
		"no JSON": func(*http.Request) (*http.Response, error) { return respond(200, "<html>"), nil },
		"no keys": func(*http.Request) (*http.Response, error) { return respond(200, `{"keys":[]}`), nil },
		"no RSA keys": func(*http.Request) (*http.Response, error) {
			return respond(200, `{"keys":[{"kty":"oct","kid":"k1","k":"AAAA"},{"kty":"odd"}]}`), nil
		},
		"too large": func(*http.Request) (*http.Response, error) {
			return respond(200, whole+strings.Repeat(" ", 64<<10)), nil
		},
	} {
		i := newIssuer(t, "k1")
		i.respondWith(respondFunc)
		a := i.authenticator()
		for range 3 {
			if err := push(a, i.token("k1", i.claims())); !errors.Is(err, ingest.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if i.fetches() != 1 {
			t.Errorf("%s: fetched %q", name, i.requests)
		}
		i.respondWith(nil)
		i.advance(time.Minute)
		if err := push(a, i.token("k1", i.claims())); err != nil {
			t.Errorf("%s, after the keys are available again: %v", name, err)
		}
	}
}

func TestKeys_AreUsedForOneDayOfOutage(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	token := i.token("k1", i.claims("exp", i.clock().Add(72*time.Hour).Unix()))
	if err := push(a, token); err != nil {
		t.Fatal(err)
	}
	i.respondWith(func(*http.Request) (*http.Response, error) { return respond(503, ""), nil })
	i.advance(24*time.Hour - time.Second)
	if err := push(a, token); err != nil {
		t.Errorf("within the day: %v", err)
	}
	if err := push(a, i.signed(newKey(t), map[string]any{"kid": "k2"}, i.claims())); !errors.Is(err, ingest.ErrUnavailable) {
		t.Errorf("an unknown key that may be new: %v", err)
	}
	i.advance(time.Second)
	if err := push(a, token); !errors.Is(err, ingest.ErrUnavailable) {
		t.Errorf("after the day: %v", err)
	}
}

func TestKeys_UnsuitableKeysAreIgnored(t *testing.T) {
	i := newIssuer(t, "k1", "encryption", "other algorithm", "small", "")
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	i.keys["small"] = small
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: i.keys["k1"].Public(), KeyID: "k1"},
		{Key: i.keys["encryption"].Public(), KeyID: "encryption", Use: "enc"},
		{Key: i.keys["other algorithm"].Public(), KeyID: "other algorithm", Algorithm: "PS256"},
		{Key: small.Public(), KeyID: "small"},
		{Key: i.keys[""].Public()},
	}}
	body, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	i.respondWith(func(*http.Request) (*http.Response, error) { return respond(200, string(body)), nil })
	a := i.authenticator()
	for id := range i.keys {
		err := push(a, i.token(id, i.claims()))
		if id == "k1" && err != nil || id != "k1" && !errors.Is(err, ingest.ErrUnauthenticated) {
			t.Errorf("key %q: %v", id, err)
		}
	}
}

func TestKeys_FetchSurvivesCancelledRequest(t *testing.T) {
	i := newIssuer(t, "k1")
	i.respondWith(func(r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return respond(200, i.keySet()), nil
	})
	a := i.authenticator()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	h := http.Header{"Authorization": {"Bearer " + i.token("k1", i.claims())}}
	_ = a.Authenticate(cancelled, h, nil)
	if err := push(a, i.token("k1", i.claims())); err != nil || i.fetches() != 1 {
		t.Errorf("the next request after %d fetches: %v", i.fetches(), err)
	}
}

func TestKeys_ConcurrentFirstPushesShareOneFetch(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	token := i.token("k1", i.claims())
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if err := push(a, token); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if i.fetches() != 1 {
		t.Errorf("%d fetches", i.fetches())
	}
}

// The peer keeps the connection open after what it wrote.
func TestKeys_FetchEndsWhateverThePeerResponds(t *testing.T) {
	for name, text := range map[string]string{
		"switched protocols": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"hints":              "HTTP/1.1 103 Early Hints\r\n\r\n",
		"a cut header":       "HTTP/1.1 200 OK\r\nX: a\r\n",
		"a cut body":         "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, text)
				_, _ = io.Copy(io.Discard, conn)
			}()
			i := newIssuer(t, "k1")
			a := i.authenticator(func(o *pubsub.OIDCOptions) {
				o.KeysURL, o.Client = "http://"+listener.Addr().String(), &http.Client{Timeout: 200 * time.Millisecond}
			})
			if err := push(a, i.token("k1", i.claims())); !errors.Is(err, ingest.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			select {
			case <-closed:
			case <-time.After(10 * time.Second):
				t.Error("the connection is still open")
			}
		})
	}
}
