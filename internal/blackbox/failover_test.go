package blackbox

import (
	"net"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/blackbox/testbed"
)

// failover is a PostgreSQL and its standby, behind an address that leads to whichever serves.
type failover struct {
	url     string // through the relay
	front   *ownPostgres
	primary *testbed.Server
	standby *testbed.Server // replaces the primary after promote
}

// newFailover starts both, with the schema migrated.
func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{front: newRelay(t), primary: testbed.Postgres(t)}
	f.url = f.front.url()
	f.front.setTarget(f.primary.Address())
	c := configure(f.url, &provider{address: "127.0.0.1:1"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	f.standby = f.primary.Standby()
	return f
}

// loseNextCommits detaches the standby from the primary once it has everything committed before: what is
// committed from now on is acknowledged, and lost with the primary.
func (f *failover) loseNextCommits() {
	t := f.front.t
	t.Helper()
	written := f.primary.Query("SELECT pg_current_wal_flush_lsn()")
	waitUntil(t, 30*time.Second, "the standby has caught up", func() bool {
		return f.standby.Query("SELECT pg_last_wal_replay_lsn() >= '"+written+"'") == "t"
	})
	f.standby.Query("ALTER SYSTEM SET primary_conninfo = ''")
	f.standby.Query("SELECT pg_reload_conf()")
	waitUntil(t, 30*time.Second, "the standby is detached", func() bool {
		return f.primary.Query("SELECT count(*) FROM pg_stat_replication") == "0"
	})
}

// promote kills the primary, and promotes the standby in its place.
func (f *failover) promote() {
	t := f.front.t
	t.Helper()
	f.front.setTarget("")
	f.primary.Kill()
	if f.standby.Query("SELECT pg_promote()") != "t" {
		t.Fatal("the standby is not promoted")
	}
	f.front.setTarget(f.standby.Address())
}

// newRelay returns a relay that has no target yet.
func newRelay(t *testing.T) *ownPostgres {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	d := &ownPostgres{t: t, relay: listener, conns: map[net.Conn]bool{}}
	go d.accept()
	return d
}

// setTarget directs new connections to a server, "" for none, and closes the existing ones.
func (d *ownPostgres) setTarget(server string) {
	d.mu.Lock()
	d.target = server
	d.mu.Unlock()
	d.closeConnections()
}

// The standby has what was committed before it was detached, and nothing after.
func TestFailover_LosesWhatTheStandbyHadNotReceived(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	p := startProvider(t)
	g := serve(t, configure(f.url, p))
	before, after := newReminder("before"), newReminder("after")
	g.redeliver(before, 1)
	was := f.primary.Query("SELECT system_identifier || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()")

	f.loseNextCommits()
	g.redeliver(after, 1)
	g.checkState(after, entryState{"sent", "", "accepted", 1})
	f.promote()
	g.waitReady()
	g.checkState(before, entryState{"sent", "", "accepted", 1})
	if s := g.detail(after); s.Entry.ID != "" {
		t.Errorf("the entry still exists: %+v", s)
	}
	is := f.standby.Query("SELECT system_identifier || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()")
	if is == was {
		t.Errorf("system identifier and timeline are still %s", is)
	}
	fresh := newReminder("fresh").with("created_at", time.Now().UTC())
	g.pushUntilAcked(fresh, 30*time.Second)
}
