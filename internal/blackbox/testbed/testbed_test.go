package testbed

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestClock_MovesWhileRunningAndAcrossRestarts(t *testing.T) {
	t.Parallel()
	server, clock := PostgresWithClock(t)
	ahead := func() time.Duration {
		t.Helper()
		seconds, err := strconv.ParseFloat(server.Query("SELECT extract(epoch FROM clock_timestamp())"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return (time.Duration(seconds*1e3)*time.Millisecond - time.Duration(time.Now().UnixMilli())*time.Millisecond).Round(time.Minute)
	}
	for _, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 24 * time.Hour} {
		clock.Move(by)
		if got := ahead(); got != by {
			t.Errorf("it is %v ahead, want %v", got, by)
		}
		server.Kill()
		server.Start()
		if got := ahead(); got != by {
			t.Errorf("started again it is %v ahead, want %v", got, by)
		}
	}
	begun := time.Now()
	server.Query("SELECT pg_sleep(0.2)")
	if took := time.Since(begun); took < 200*time.Millisecond || took > 10*time.Second {
		t.Errorf("a wait of 200 ms took %v", took)
	}
}

func TestPooler_SharesConnectionsByTransaction(t *testing.T) {
	t.Parallel()
	through := Postgres(t).Pooler(1)
	var seen []string
	for range 2 {
		conn, err := pgx.Connect(t.Context(), through) // stays open: in session mode it would block the next one
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var backend int
		if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()", pgx.QueryExecModeCacheDescribe).Scan(&backend); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strconv.Itoa(backend))
	}
	if seen[0] != seen[1] {
		t.Errorf("two clients of one server connection see the backends %v", seen)
	}
}

func TestStartProcess_FailsWhenTheProgramEnds(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	_, err := startProcess(t, t.TempDir(), nil, "TERM", "ready", "/bin/sh", "-c", "echo no such luck >&2")
	if err == nil || !strings.Contains(err.Error(), "no such luck") || time.Since(begun) > startTimeout/2 {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
}
