package blackbox

import (
	"net"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/blackbox/testbed"
)

// failover is a PostgreSQL and a standby that follows it, behind an address that leads to whoever serves.
type failover struct {
	url     string // through the front
	front   *database
	primary *testbed.Server
	standby *testbed.Server // has replaced the primary once that has failed
}

// newFailover starts both, with the schema in them.
func newFailover(t *testing.T) *failover {
	t.Helper()
	f := &failover{front: relay(t), primary: testbed.Postgres(t)}
	f.url = f.front.url()
	f.front.leadTo(f.primary.Address())
	c := configure(f.url, &provider{address: "127.0.0.1:1"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	f.standby = f.primary.Standby()
	return f
}

// loseNextCommits parts the standby from the primary once it has all that was committed before: what is
// committed from now on is acknowledged, and gone with the primary.
func (f *failover) loseNextCommits() {
	t := f.front.t
	t.Helper()
	written := f.primary.Query("SELECT pg_current_wal_flush_lsn()")
	until(t, 30*time.Second, "the standby has caught up", func() bool {
		return f.standby.Query("SELECT pg_last_wal_replay_lsn() >= '"+written+"'") == "t"
	})
	f.standby.Query("ALTER SYSTEM SET primary_conninfo = ''")
	f.standby.Query("SELECT pg_reload_conf()")
	until(t, 30*time.Second, "the standby is parted", func() bool {
		return f.primary.Query("SELECT count(*) FROM pg_stat_replication") == "0"
	})
}

// fail kills the primary, and puts the standby in its place.
func (f *failover) fail() {
	t := f.front.t
	t.Helper()
	f.front.leadTo("")
	f.primary.Kill()
	if f.standby.Query("SELECT pg_promote()") != "t" {
		t.Fatal("the standby is not promoted")
	}
	f.front.leadTo(f.standby.Address())
}

// relay is an address that leads nowhere yet.
func relay(t *testing.T) *database {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	d := &database{t: t, relay: listener, open: map[net.Conn]bool{}}
	go d.accept()
	return d
}

// leadTo sends whoever comes from now on to a server, "" for none, and cuts off those who are there.
func (d *database) leadTo(server string) {
	d.mu.Lock()
	d.target = server
	d.mu.Unlock()
	d.hangUp()
}

// The standby knows what was committed before it was parted, and nothing after.
func TestAFailoverForgetsWhatTheStandbyHadNotReceived(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	p := startProvider(t)
	g := serve(t, configure(f.url, p))
	before, after := remind("before"), remind("after")
	g.repeated(before, 1)
	was := f.primary.Query("SELECT system_identifier || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()")

	f.loseNextCommits()
	g.repeated(after, 1)
	g.stands(after, standing{"sent", "", "accepted", 1})
	f.fail()
	g.ready()
	g.stands(before, standing{"sent", "", "accepted", 1})
	if s := g.of(after); s.Entry.ID != "" {
		t.Errorf("it is remembered: %+v", s)
	}
	is := f.standby.Query("SELECT system_identifier || ' ' || left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()")
	if is == was {
		t.Errorf("system and timeline are %s as before", is)
	}
	fresh := remind("fresh").but("created_at", time.Now().UTC())
	g.acked(fresh, 30*time.Second)
}
