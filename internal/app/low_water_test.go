package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestRun_LogsWhereTheConfigurationReachesFurtherBackThanTheLedger(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	cfg := devConfig(t, dir)
	cfg.Memory = 400 * day
	undated := config.Source{
		Format: config.FormatPlain, Auth: config.Auth{None: true}, Retries: config.RetriesBroker, TakeoverAfter: time.Minute,
		AnswerWithin: 3 * time.Second, Limit: 1 << 10, MaxAge: 60 * day,
	}
	cfg.Sources["undated"] = undated
	const ofMemory, ofSource = "memory reaches further back than the ledger", "source=undated"

	run := func() string {
		t.Helper()
		log := &logBuffer{}
		_, stop := start(t, cfg, log)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	if log := run(); strings.Contains(log, ofMemory) || strings.Contains(log, ofSource) {
		t.Errorf("nothing was deleted: %s", log)
	}
	deleteEntry(t, cfg.Database.Path, time.Now().Add(-50*day))
	if log := run(); !strings.Contains(log, ofMemory) || !strings.Contains(log, ofSource) || strings.Contains(log, "source=queue") {
		t.Errorf("an entry was deleted 50 days after its last write: %s", log)
	}
	cfg.Memory = 40 * day
	if log := run(); strings.Contains(log, ofMemory) {
		t.Errorf("the memory is as it was at the deletion: %s", log)
	}
}

// deleteEntry writes an entry at a time, and deletes it.
func deleteEntry(t *testing.T, path string, at time.Time) {
	t.Helper()
	ctx := t.Context()
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	e := ledger.Entry{
		Identity: ledger.Identity{ReminderID: "rem-old", Type: "seat", Channel: "email"},
		State:    ledger.Sent, Reason: ledger.ReasonAccepted, Receipt: "receipt", Published: at,
	}
	e.SendKey = e.Identity.SendKey()
	if e, err = s.Insert(ctx, ledger.Change{Entry: e}); err == nil {
		err = s.Delete(ctx, e)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
