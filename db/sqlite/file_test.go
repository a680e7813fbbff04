package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/internal/ledger"
)

func claimed(id ledger.Identity, lease time.Duration) ledger.Change {
	return ledger.Change{Entry: ledger.Entry{
		Identity: id, SendKey: id.SendKey(), State: ledger.Sending, Reason: ledger.ReasonClaimed,
		Holder: "h", LeaseUntil: ledger.In(lease), ClaimedAt: ledger.In(0),
	}}
}

func TestOpen_SecondProcessGetsErrInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	open(t, path, nil)
	_, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if !errors.Is(err, sqlite.ErrInUse) || !strings.Contains(err.Error(), path+".lock") {
		t.Fatalf("second Open: %v; want ErrInUse and the lock's path", err)
	}
}

// One process serves a file, by whatever name it opens it, and also after its lock file was removed.
func TestOpen_SecondProcessByAnotherNameFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	open(t, path, nil)
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(context.Background(), sqlite.Options{Path: link}); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("through a symbolic link: %v", err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(context.Background(), sqlite.Options{Path: path}); !errors.Is(err, sqlite.ErrInUse) {
		t.Errorf("after its lock file was removed: %v", err)
	}
	hard := filepath.Join(dir, "hard.db")
	if err := os.Link(path, hard); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(context.Background(), sqlite.Options{Path: hard}); err == nil || !strings.Contains(err.Error(), "hard links") {
		t.Errorf("through a hard link: %v", err)
	}
}

func TestClose_LeavesOneFileThatReopens(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "ledger.db")
	id := ledger.Identity{ReminderID: "r", Type: "t", Channel: "c"}
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(ctx); !errors.Is(err, sqlite.ErrSchema) {
		t.Errorf("Ping before the migrations: %v, want ErrSchema", err)
	}
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(ctx, claimed(id, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		t.Errorf("the log still holds %d bytes", info.Size())
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	if seen, err := open(t, path, nil).Load(ctx, id); err != nil || seen.Entry.Absent() {
		t.Errorf("after reopening: %+v, %v", seen, err)
	}
}

func TestOpen_ExpiresLeasesOfAnEarlierProcess(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "ledger.db")
	live := ledger.Identity{ReminderID: "live", Type: "t", Channel: "c"}
	past := ledger.Identity{ReminderID: "past", Type: "t", Channel: "c"}
	now := time.Date(2031, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	for id, lease := range map[ledger.Identity]time.Duration{live: time.Hour, past: -time.Hour} {
		if _, err := s.Insert(ctx, claimed(id, lease)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	now = now.Add(time.Minute)
	s = open(t, path, clock)
	seen, err := s.Load(ctx, live)
	e := seen.Entry
	if err != nil || e.Version != 2 || !e.LeaseUntil.On(now).Equal(now) || e.Holder != "h" {
		t.Errorf("the open lease: %+v, %v; want it to expire now, in a new version", e, err)
	}
	if e, err := s.Load(ctx, past); err != nil || e.Entry.Version != 1 {
		t.Errorf("the expired lease: version %d, %v; want it untouched", e.Entry.Version, err)
	}
	expired, err := s.ExpiredLeases(ctx, time.Hour, 10)
	if err != nil || len(expired) != 2 {
		t.Errorf("ExpiredLeases: %v, %v", expired, err)
	}
	// Only leases of earlier processes expire: a lease of this one survives a later migration.
	own := ledger.Identity{ReminderID: "own", Type: "t", Channel: "c"}
	if _, err := s.Insert(ctx, claimed(own, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Load(ctx, own); err != nil || e.Entry.Version != 1 {
		t.Errorf("the lease of this process: version %d, %v", e.Entry.Version, err)
	}
}

func TestOpen_EachStoreHasItsOwnClock(t *testing.T) {
	ctx := context.Background()
	id := ledger.Identity{ReminderID: "r", Type: "t", Channel: "c"}
	for _, at := range []time.Time{time.UnixMicro(1).UTC(), time.UnixMicro(1<<50 + 1).UTC()} {
		s := open(t, filepath.Join(t.TempDir(), "ledger.db"), func() time.Time { return at })
		e, err := s.Insert(ctx, claimed(id, time.Second))
		if err != nil || !e.FirstSeen.Equal(at) || !e.LeaseUntil.On(at).Equal(at.Add(time.Second)) {
			t.Errorf("first seen %v, %v; want %v", e.FirstSeen, err, at)
		}
	}
}
