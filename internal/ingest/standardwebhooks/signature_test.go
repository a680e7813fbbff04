package standardwebhooks_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/standardwebhooks"
)

// A test vector made by hand from the specification's text, with its signing time.
const (
	vectorBody      = `{"type":"invoice.paid","data":{"id":"inv_77","amount":4200}}`
	vectorID        = "msg_relay_0001"
	vectorTime      = 1767225600
	vectorSecret    = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="
	vectorSignature = "v1,jCPdwlCJ/BhB551+3JM4E/InZ+2G5GE5IPWHfE1ot0w="
	vectorEd25519   = "v1a,r4bZMS0cqA3chYgr6z2VM+bCiUcQnSY/2/Gvw/Q9kuy0qkxlVBPlygG+N8cUzhLlgihuCzN+2r1kiE4cUpG7BQ=="
	otherSecret     = "whsec_ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A="
)

func signature(t *testing.T, now int64, secrets ...string) *standardwebhooks.Signature {
	t.Helper()
	s, err := standardwebhooks.NewSignature(secrets, func() time.Time { return time.Unix(now, 0) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// headers returns the headers of a signed request, changed by pairs of name and value. An empty value removes the
// header.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", vectorID)
	h.Set("webhook-timestamp", strconv.Itoa(vectorTime))
	h.Set("webhook-signature", vectorSignature)
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
		if pairs[i+1] == "" {
			h.Del(pairs[i])
		}
	}
	return h
}

func svix() http.Header {
	return http.Header{
		"Svix-Id": {vectorID}, "Svix-Timestamp": {strconv.Itoa(vectorTime)}, "Svix-Signature": {vectorSignature},
	}
}

// sign is an independent implementation of the signature scheme.
func sign(t *testing.T, secret, id, stamp, body string) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "." + body))
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestSignature_AcceptsVector(t *testing.T) {
	for name, c := range map[string]struct {
		h       http.Header
		secrets []string
	}{
		"unchanged":                   {headers(), []string{vectorSecret}},
		"under Svix's names":          {svix(), []string{vectorSecret}},
		"a secret without its prefix": {headers(), []string{strings.TrimPrefix(vectorSecret, "whsec_")}},
		"the new secret comes first":  {headers(), []string{otherSecret, vectorSecret}},
		"the new secret comes last":   {headers(), []string{vectorSecret, otherSecret}},
		"after an invalid signature":  {headers("webhook-signature", sign(t, otherSecret, "x", "1", "y")+" "+vectorSignature), []string{vectorSecret}},
		"before an invalid signature": {headers("webhook-signature", vectorSignature+" "+sign(t, otherSecret, "x", "1", "y")), []string{vectorSecret}},
		"after another version":       {headers("webhook-signature", vectorEd25519+" v9,? v1 "+vectorSignature), []string{vectorSecret}},
	} {
		if err := signature(t, vectorTime, c.secrets...).Authenticate(context.Background(), c.h, []byte(vectorBody)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSignature_RejectsEverythingElse(t *testing.T) {
	_, digest, _ := strings.Cut(vectorSignature, ",")
	bytes, err := base64.StdEncoding.DecodeString(digest)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(b []byte) string { return "v1," + base64.StdEncoding.EncodeToString(b) }
	twice := headers()
	twice.Add("webhook-id", vectorID)
	stamp := strconv.Itoa(vectorTime)
	long := strings.Repeat("m", 256)
	mixed := svix()
	mixed.Set("webhook-id", "msg_forged")

	for name, c := range map[string]struct {
		h    http.Header
		body string
	}{
		"nothing":                        {http.Header{}, vectorBody},
		"no signature":                   {headers("webhook-signature", ""), vectorBody},
		"an empty signature":             {http.Header{"Webhook-Id": {vectorID}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {""}}, vectorBody},
		"a version without a signature":  {headers("webhook-signature", "v1,"), vectorBody},
		"a signature without a version":  {headers("webhook-signature", digest), vectorBody},
		"another version's":              {headers("webhook-signature", vectorEd25519), vectorBody},
		"the digest as version v1a":      {headers("webhook-signature", "v1a,"+digest), vectorBody},
		"31 bytes":                       {headers("webhook-signature", encoded(bytes[:31])), vectorBody},
		"33 bytes":                       {headers("webhook-signature", encoded(append(bytes[:32:32], 0))), vectorBody},
		"lower hex":                      {headers("webhook-signature", "v1,"+hex.EncodeToString(bytes)), vectorBody},
		"upper hex":                      {headers("webhook-signature", "v1,"+strings.ToUpper(hex.EncodeToString(bytes))), vectorBody},
		"no padding":                     {headers("webhook-signature", strings.TrimSuffix(vectorSignature, "=")), vectorBody},
		"URL-safe base64":                {headers("webhook-signature", "v1,"+base64.URLEncoding.EncodeToString(bytes)), vectorBody},
		"another secret's":               {headers("webhook-signature", sign(t, otherSecret, vectorID, stamp, vectorBody)), vectorBody},
		"another id":                     {headers("webhook-id", "msg_relay_0002"), vectorBody},
		"no id":                          {headers("webhook-id", ""), vectorBody},
		"two ids":                        {twice, vectorBody},
		"an id too long":                 {headers("webhook-id", long, "webhook-signature", sign(t, vectorSecret, long, stamp, vectorBody)), vectorBody},
		"a second set with another id":   {mixed, vectorBody},
		"another time inside the window": {headers("webhook-timestamp", strconv.Itoa(vectorTime+1)), vectorBody},
		"another body":                   {headers(), strings.Replace(vectorBody, "4200", "4201", 1)},
		"a line end behind the body":     {headers(), vectorBody + "\n"},
		"no body":                        {headers(), ""},
	} {
		err := signature(t, vectorTime, vectorSecret).Authenticate(context.Background(), c.h, []byte(c.body))
		if !errors.Is(err, ingest.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSignature_TimestampToleranceIsFiveMinutes(t *testing.T) {
	for stamp, ok := range map[string]bool{
		strconv.Itoa(vectorTime - 301): false,
		strconv.Itoa(vectorTime - 300): true,
		strconv.Itoa(vectorTime - 299): true,
		strconv.Itoa(vectorTime + 299): true,
		strconv.Itoa(vectorTime + 300): true,
		strconv.Itoa(vectorTime + 301): false,
		"1767225600000":                false, // milliseconds
		"123abc":                       false,
		"":                             false,
		"-1767225600":                  false,
		"+1767225600":                  false,
		" 1767225600":                  false,
		"1767225600.0":                 false,
		"1.7672256e9":                  false,
		"18446744073709551616":         false,
		"0":                            false,
	} {
		h := headers("webhook-timestamp", stamp, "webhook-signature", sign(t, vectorSecret, vectorID, stamp, vectorBody))
		err := signature(t, vectorTime, vectorSecret).Authenticate(context.Background(), h, []byte(vectorBody))
		if (err == nil) != ok {
			t.Errorf("%q at %d: %v", stamp, vectorTime, err)
		}
	}
}

func TestSignature_CoversRawBytes(t *testing.T) {
	odd := `{ "b":1.0 ,"a":"x\/y" , "n":9007199254740993}`
	h := headers("webhook-signature", sign(t, vectorSecret, vectorID, strconv.Itoa(vectorTime), odd))
	s := signature(t, vectorTime, vectorSecret)
	if err := s.Authenticate(context.Background(), h, []byte(odd)); err != nil {
		t.Errorf("odd spacing: %v", err)
	}
	if err := s.Authenticate(context.Background(), h, []byte(`{"b":1.0,"a":"x/y","n":9007199254740993}`)); err == nil {
		t.Error("the same JSON encoded differently was accepted with the old signature")
	}
}

func TestNewSignature_UnsafeSecretsAreRejected(t *testing.T) {
	key := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", n)))
	}
	for name, secrets := range map[string][]string{
		"none":                {},
		"an empty one":        {""},
		"a prefix alone":      {"whsec_"},
		"an empty one of two": {vectorSecret, ""},
		"23 bytes":            {key(23)},
		"65 bytes":            {key(65)},
		"no base64":           {"whsec_canary-canary-canary-canary-canary"},
		"a version in front":  {"v1," + vectorSecret},
	} {
		s, err := standardwebhooks.NewSignature(secrets, time.Now)
		if err == nil || s != nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
	for _, n := range []int{24, 64} {
		if _, err := standardwebhooks.NewSignature([]string{key(n)}, time.Now); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
