package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// called sends to a stage as the gateway would; kept back, it hangs up once the message is taken.
func called(t *testing.T, s *stage, reminder, repeatKey string, keptBack bool) int {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	body := strings.NewReader(fmt.Sprintf(`{"send_key": "k", "reminder_id": %q}`, reminder))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+sendPath, body)
	if err != nil {
		t.Fatal(err)
	}
	if repeatKey != "" {
		req.Header.Set("Idempotency-Key", repeatKey)
	}
	if keptBack {
		go func() {
			<-s.taken
			hangUp()
		}()
	}
	resp, err := direct(10 * time.Second).Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

func TestTheStandInKeepsOnePromise(t *testing.T) {
	for name, c := range map[string]struct {
		contract            string
		firstKey, secondKey string // in the header
		messages            int
	}{
		"a repeat is recognised":               {Idempotent, "k", "k", 1},
		"one under another key is not":         {Idempotent, "k", "l", 2},
		"one without a key is not":             {Idempotent, "", "", 2},
		"a blind provider recognises nothing":  {Blind, "k", "k", 2},
		"nor does one that can be asked later": {Lookup, "k", "k", 2},
	} {
		s, err := openStage(c.contract, "rem")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		if status := called(t, s, "other", "k", false); status != http.StatusUnprocessableEntity {
			t.Errorf("%s: another reminder is answered %d", name, status)
		}
		if status := called(t, s, "rem", c.firstKey, true); status != 0 {
			t.Errorf("%s: the first call is answered %d", name, status)
		}
		if status := called(t, s, "rem", c.secondKey, false); status != http.StatusOK {
			t.Errorf("%s: the second call is answered %d", name, status)
		}
		calls, _ := s.record()
		h := history{calls: calls}
		if messages, _, _ := h.sent(); messages != c.messages || len(calls) != 2 {
			t.Errorf("%s: %d messages of %d calls, want %d of 2", name, messages, len(calls), c.messages)
		}
		for key, want := range map[string]int{"k": http.StatusOK, "nobody's": http.StatusNotFound} {
			if c.contract == Idempotent {
				continue // known by what the header said
			}
			resp, err := direct(10 * time.Second).Get(s.url + lookupPath + "?send_key=" + key)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: asked for %s: %s", name, key, resp.Status)
			}
		}
	}
}
