package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// lowWater returns the low-water mark as it is read with an entry that does not exist.
func lowWater(t *testing.T, s Store, absent ledger.Identity) time.Time {
	t.Helper()
	snapshot, err := s.Load(context.Background(), absent)
	if err != nil || !snapshot.Entry.Absent() {
		t.Fatalf("Load %v: %+v, %v", absent, snapshot.Entry, err)
	}
	if !snapshot.LowWater.IsZero() && snapshot.LowWater.Location() != time.UTC {
		t.Errorf("the low-water mark is not in UTC: %v", snapshot.LowWater)
	}
	return snapshot.LowWater
}

func testLowWater(t *testing.T, s Store) {
	ctx := context.Background()
	never := identity(99)
	if mark := lowWater(t, s, never); !mark.IsZero() {
		t.Errorf("nothing was deleted, and the mark is %v", mark)
	}
	first, second, third := mustInsert(t, s, sent(identity(1))), mustInsert(t, s, sent(identity(2))), mustInsertWithPayload(t, s, sent(identity(3)))
	for _, change := range []ledger.Change{
		{Entry: third, Purge: ledger.PurgePayload},
		ledger.Erase(third, auditEvent(third.Identity, "erased")),
	} {
		change.Entry.Version, change.Entry.Updated = third.Version, third.Updated
		stored, err := s.Update(ctx, change)
		if err != nil {
			t.Fatal(err)
		}
		third = stored
	}
	if mark := lowWater(t, s, never); !mark.IsZero() {
		t.Errorf("payload and personal data were deleted, but no entry, and the mark is %v", mark)
	}
	for _, row := range []struct {
		name string
		e    ledger.Entry
		want time.Time
	}{
		{"the second", second, second.Updated},
		{"the first, which is older", first, second.Updated},
		{"the third", third, third.Updated},
	} {
		if err := s.Delete(ctx, row.e); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if mark := lowWater(t, s, row.e.Identity); !mark.Equal(row.want) {
			t.Errorf("%s was deleted: its own load has the mark %v, want %v", row.name, mark, row.want)
		}
		if mark := lowWater(t, s, never); !mark.Equal(row.want) {
			t.Errorf("%s was deleted: another load has the mark %v, want %v", row.name, mark, row.want)
		}
	}
	if err := s.Delete(ctx, second); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("deleted twice: %v", err)
	}
	if mark := lowWater(t, s, never); !mark.Equal(third.Updated) {
		t.Errorf("a deletion that did not happen lowered the mark to %v", mark)
	}
}

// Whoever finds no entry, since it was deleted at this moment, must read the mark of its deletion, else the reminder is
// taken for a new one.
func testConcurrentLowWater(t *testing.T, s Store) {
	ctx := context.Background()
	var entries []ledger.Entry
	for n := range 40 {
		entries = append(entries, mustInsert(t, s, sent(identity(n))))
	}
	var work sync.WaitGroup
	for _, order := range []int{1, -1} {
		work.Go(func() { // two replicas purge, from both ends, so that marks arrive out of order
			for n := range entries {
				e := entries[((n*order)%len(entries)+len(entries))%len(entries)]
				if err := s.Delete(ctx, e); err != nil && !errors.Is(err, ledger.ErrStale) {
					t.Errorf("Delete %v: %v", e.Identity, err)
				}
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for n := range entries {
				e := entries[(n+len(entries)/2)%len(entries)]
				for {
					snapshot, err := s.Load(ctx, e.Identity)
					if err != nil {
						t.Errorf("Load %v: %v", e.Identity, err)
						return
					}
					if !snapshot.Entry.Absent() {
						continue
					}
					if snapshot.LowWater.Before(e.Updated) {
						t.Errorf("%v is absent, last written %v, and the mark is %v", e.Identity, e.Updated, snapshot.LowWater)
					}
					break
				}
			}
		})
	}
	work.Wait()
	if mark, last := lowWater(t, s, identity(0)), entries[len(entries)-1].Updated; !mark.Equal(last) {
		t.Errorf("the mark is %v, want the last write of all, %v", mark, last)
	}
}
