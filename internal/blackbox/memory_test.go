package blackbox

import (
	"strings"
	"testing"
	"time"
)

// Symptom: after `memory` was raised from 40 to 400 days, a message was sent again whose entry had been deleted under
// the shorter memory. What was deleted is known after restarts too.
func TestMemory_RaisedAfterAPurgeSendsNothingAgain(t *testing.T) {
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		short := configure(database, p).with("40d", "memory")
		long := short.with("400d", "memory").with("60d", "types", "default", "deadline")
		reminder, later := newReminder("rem-forgotten"), newReminder("rem-later")
		published := time.Now().Add(-41 * 24 * time.Hour)

		g := serve(t, short)
		if a := g.push(reminder.String()); a.status >= 300 {
			t.Fatalf("first delivery: %s", a)
		}
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}
		age(t, database, published.Add(time.Minute))

		g = serve(t, short) // a purge run begins with the process
		id := reminder.identity()
		waitUntil(t, 15*time.Second, "the entry is deleted", func() bool {
			return g.entryDetail(id.ReminderID, id.Type, id.Channel).Entry.State == ""
		})
		if err := g.stop(); err != nil {
			t.Fatal(err)
		}

		g = serve(t, long)
		for _, d := range []document{
			reminder.with("created_at", published.Format(time.RFC3339)),
			later.with("created_at", published.Add(time.Hour).Format(time.RFC3339)),
		} {
			if a := g.push(d.String()); a.status >= 300 {
				t.Errorf("%s: %s", d["reminder_id"], a)
			}
		}
		if e := g.entryDetail(id.ReminderID, id.Type, id.Channel).Entry; e.State != "dropped" || e.Reason != "before_memory" {
			t.Errorf("delivered again, it is %s, %s", e.State, e.Reason)
		}
		if calls := p.countsFor(reminder); calls.Accepts != 1 {
			t.Errorf("the provider accepted the deleted reminder %d times", calls.Accepts)
		}
		if calls := p.countsFor(later); calls.Accepts != 1 {
			t.Errorf("the provider accepted what was published after everything that was deleted %d times", calls.Accepts)
		}
	})
}

// age gives every entry the times that it would have if it had been seen and written at this time.
func age(t *testing.T, database string, at time.Time) {
	t.Helper()
	db := openDB(t, database)
	var moment any = at
	update := "UPDATE entries SET first_seen = $1, updated = $1, published = $1"
	if strings.HasPrefix(database, "sqlite://") {
		moment = at.UnixMicro()
	}
	if _, err := db.Exec(update, moment); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
