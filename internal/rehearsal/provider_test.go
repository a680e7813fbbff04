package rehearsal

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// called sends a request to a fake provider like the gateway. With hangUp it disconnects when the message is accepted.
func called(t *testing.T, p *fakeProvider, reminder, repeatKey string, hangUp bool) int {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := strings.NewReader(fmt.Sprintf(`{"send_key": "k", "reminder_id": %q}`, reminder))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+sendPath, body)
	if err != nil {
		t.Fatal(err)
	}
	if repeatKey != "" {
		req.Header.Set("Idempotency-Key", repeatKey)
	}
	if hangUp {
		go func() {
			<-p.firstCall
			cancel()
		}()
	}
	resp, err := directClient(10 * time.Second).Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

func TestFakeProvider_KeepsItsContract(t *testing.T) {
	for name, c := range map[string]struct {
		contract            string
		firstKey, secondKey string // in the header
		messages            int
	}{
		"a repeat is recognised":               {Idempotent, "k", "k", 1},
		"one with another key is not":          {Idempotent, "k", "l", 2},
		"one without a key is not":             {Idempotent, "", "", 2},
		"a blind provider recognises nothing":  {Blind, "k", "k", 2},
		"a lookup provider recognises nothing": {Lookup, "k", "k", 2},
	} {
		p, err := newFakeProvider(c.contract, "rem")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		if status := called(t, p, "other", "k", false); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: another reminder is answered %d", name, status)
		}
		if status := called(t, p, "rem", c.firstKey, true); status != 0 {
			t.Errorf("%s: the first call is answered %d", name, status)
		}
		if status := called(t, p, "rem", c.secondKey, false); status != http.StatusOK {
			t.Errorf("%s: the second call is answered %d", name, status)
		}
		calls, _ := p.recorded()
		h := history{calls: calls}
		if messages, _, _ := h.sent(); messages != c.messages || len(calls) != 2 {
			t.Errorf("%s: %d messages of %d calls, want %d of 2", name, messages, len(calls), c.messages)
		}
		for key, want := range map[string]int{"k": http.StatusOK, "nobody's": http.StatusNotFound} {
			if c.contract == Idempotent {
				continue // known by the key in the header
			}
			resp, err := directClient(10 * time.Second).Get(p.url + lookupPath + "?send_key=" + key)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: lookup of %s: %s", name, key, resp.Status)
			}
		}
	}
}
