package pubsub_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sendonce/sendonce/internal/broker"
)

func TestMadeUpKeyIDsFetchAtMostOnceAMinute(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	stranger := newKey(t)
	madeUp := func(n int) string {
		return unsigned(map[string]any{"alg": "RS256", "kid": fmt.Sprint("made-up-", n)}, i.claims(),
			func(string) []byte { return stranger.N.Bytes() })
	}
	for minute := 1; minute <= 3; minute++ {
		for n := range 1000 {
			if err := push(a, madeUp(n)); !errors.Is(err, broker.ErrUnauthenticated) {
				t.Fatal(err)
			}
		}
		if i.fetches() != minute {
			t.Fatalf("%d fetches in %d minutes", i.fetches(), minute)
		}
		if err := push(a, i.token("k1", i.claims())); err != nil {
			t.Fatalf("the good token among them: %v", err)
		}
		i.pass(time.Minute)
	}
}

func TestANewKeyIsFoundAndAWithdrawnOneForgotten(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	old := i.token("k1", i.claims("exp", i.clock().Add(48*time.Hour).Unix()))
	if err := push(a, old); err != nil {
		t.Fatal(err)
	}
	i.keys = map[string]*rsa.PrivateKey{"k2": newKey(t)}
	i.pass(time.Minute)
	if err := push(a, i.token("k2", i.claims())); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if err := push(a, old); !errors.Is(err, broker.ErrUnauthenticated) {
		t.Errorf("the withdrawn key: %v", err)
	}

	i.keys = map[string]*rsa.PrivateKey{}
	i.keys["k3"] = newKey(t)
	withdrawn := i.token("k3", i.claims("exp", i.clock().Add(48*time.Hour).Unix()))
	i.pass(time.Minute)
	if err := push(a, withdrawn); err != nil {
		t.Fatal(err)
	}
	i.keys = map[string]*rsa.PrivateKey{"k4": newKey(t)}
	i.pass(time.Hour)
	if err := push(a, withdrawn); !errors.Is(err, broker.ErrUnauthenticated) {
		t.Errorf("an hour after it was withdrawn, with nobody asking for another: %v", err)
	}
}

func TestWhereTheKeysCannotBeHadNobodyIsToldTheyAreAStranger(t *testing.T) {
	whole := newIssuer(t, "k1").keySet()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
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
		"too much": func(*http.Request) (*http.Response, error) {
			return respond(200, whole+strings.Repeat(" ", 64<<10)), nil
		},
	} {
		i := newIssuer(t, "k1")
		i.answers(answer)
		a := i.authenticator()
		for range 3 {
			if err := push(a, i.token("k1", i.claims())); !errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if i.fetches() != 1 {
			t.Errorf("%s: asked %q", name, i.requests)
		}
		i.answers(nil)
		i.pass(time.Minute)
		if err := push(a, i.token("k1", i.claims())); err != nil {
			t.Errorf("%s, and then the keys: %v", name, err)
		}
	}
}

func TestKnownKeysServeThroughAnOutageOfADay(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	token := i.token("k1", i.claims("exp", i.clock().Add(72*time.Hour).Unix()))
	if err := push(a, token); err != nil {
		t.Fatal(err)
	}
	i.answers(func(*http.Request) (*http.Response, error) { return respond(503, ""), nil })
	i.pass(24*time.Hour - time.Second)
	if err := push(a, token); err != nil {
		t.Errorf("within the day: %v", err)
	}
	if err := push(a, i.signed(newKey(t), map[string]any{"kid": "k2"}, i.claims())); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("a key that may be new: %v", err)
	}
	i.pass(time.Second)
	if err := push(a, token); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("after the day: %v", err)
	}
}

func TestKeysThatAreNotForThisAreLeftOut(t *testing.T) {
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
	i.answers(func(*http.Request) (*http.Response, error) { return respond(200, string(body)), nil })
	a := i.authenticator()
	for id := range i.keys {
		err := push(a, i.token(id, i.claims()))
		if id == "k1" && err != nil || id != "k1" && !errors.Is(err, broker.ErrUnauthenticated) {
			t.Errorf("key %q: %v", id, err)
		}
	}
}

func TestASenderThatHangsUpDoesNotSpendTheFetch(t *testing.T) {
	i := newIssuer(t, "k1")
	i.answers(func(r *http.Request) (*http.Response, error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return respond(200, i.keySet()), nil
	})
	a := i.authenticator()
	gone, hangUp := context.WithCancel(context.Background())
	hangUp()
	h := http.Header{"Authorization": {"Bearer " + i.token("k1", i.claims())}}
	_ = a.Authenticate(gone, h, nil)
	if err := push(a, i.token("k1", i.claims())); err != nil || i.fetches() != 1 {
		t.Errorf("the next one after %d fetches: %v", i.fetches(), err)
	}
}

func TestManyFirstPushesShareOneFetch(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	token := i.token("k1", i.claims())
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			if err := push(a, token); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if i.fetches() != 1 {
		t.Errorf("%d fetches", i.fetches())
	}
}
