package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestNewLogger_RedactsEveryError(t *testing.T) {
	const user, password = "canaryuser", "canary-s3cr3t"
	for _, err := range []error{
		fmt.Errorf("postgres: failed to connect to `user=%s database=gw`:\n\t10.0.0.7:5432 (db): server error: FATAL: password authentication failed for user %q", user, user),
		fmt.Errorf("postgres: cannot parse `postgres://%s:%s@db:5432/gw?sslmode=nope`: failed to configure TLS", user, password),
		fmt.Errorf("postgres: cannot parse `host=db user=%s password=%s`: no port", user, password),
		fmt.Errorf("dial postgres://db/gw?user=%s&password=%s: refused", user, password),
		errors.Join(errors.New("first"), fmt.Errorf("postgresql://%s:%s@db/gw", user, password)),
	} {
		for _, text := range []bool{false, true} {
			var out bytes.Buffer
			log := NewLogger(&out, slog.LevelInfo, text)
			log.Warn("not ready", "error", err)
			log.With("error", err).Warn("not ready")
			log.WithGroup("deep").Warn("not ready", "error", err.Error())
			log.Warn("not ready", slog.Group("deep", "error", err))
			for _, canary := range []string{user, password} {
				if strings.Contains(out.String(), canary) {
					t.Errorf("shows %s:\n%s", canary, out.String())
				}
			}
			if redactions := strings.Count(out.String(), redacted); redactions < 4 {
				t.Errorf("%d of 4 lines are marked as redacted:\n%s", redactions, out.String())
			}
		}
	}
}

func TestNewLogger_KeepsErrorsReadable(t *testing.T) {
	for value, want := range map[any]string{
		errors.New("dial tcp 10.0.0.7:5432: connect: connection refused"): "dial tcp 10.0.0.7:5432: connect: connection refused",
		"context deadline exceeded":                                       "context deadline exceeded",
		nil:                                                               "<nil>",
	} {
		var out bytes.Buffer
		NewLogger(&out, slog.LevelInfo, false).Warn("not ready", "error", value, "source", "who@example.org")
		if !strings.Contains(out.String(), `"error":"`+want+`"`) || !strings.Contains(out.String(), "who@example.org") {
			t.Errorf("%v is logged as %s", value, out.String())
		}
	}
}

// TestRedact_IsIdempotent matters because a wide line is redacted with the private parts of its delivery, and
// once more by the logger.
func TestRedact_IsIdempotent(t *testing.T) {
	for _, text := range []string{
		`Key (to)=(ada@example.org) "x" basic "y" token= z`, "Bearer a?b user=c@d password=" + strings.Repeat("e", 5000),
		strings.Repeat("word 12345678 ", 400), `an open "quote`, "=(open",
	} {
		if once := redact(text, "word"); redact(once) != once {
			t.Errorf("%q became %q", once, redact(once))
		}
	}
}
