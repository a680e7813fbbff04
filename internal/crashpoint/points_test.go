//go:build unix

package crashpoint_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/crashpoint"
	"github.com/sendonce/sendonce/internal/ledger"
)

// victimVariable makes this test binary arm the orders in its value and pass a point.
const victimVariable = "SENDONCE_CRASHPOINT_VICTIM"

func TestMain(m *testing.M) {
	if orders := os.Getenv(victimVariable); orders != "" {
		points, err := crashpoint.Arm(orders, new(crashpoint.Clock), func(at crashpoint.Point, action string) {
			_, _ = io.WriteString(os.Stdout, string(at)+" "+action+"\n")
		})
		if err != nil {
			panic(err)
		}
		for range 2 {
			points.Pass(crashpoint.Written)
			_, _ = io.WriteString(os.Stdout, "passed\n")
		}
		return
	}
	os.Exit(m.Run())
}

// victim starts this test binary with orders.
func victim(t *testing.T, orders string) (*exec.Cmd, io.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victimVariable+"="+orders)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

func TestPass_KillsTheProcessAtTheNthPass(t *testing.T) {
	cmd, out := victim(t, "written:kill:2")
	output, _ := io.ReadAll(out)
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL || string(output) != "passed\nwritten kill\n" {
		t.Errorf("it ended with %v after %q", status, output)
	}
}

func TestPass_StopsTheProcessUntilItIsContinued(t *testing.T) {
	cmd, out := victim(t, "written:stop")
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("it is not stopped: %v, %v", status, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	output, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || string(output) != "written stop\npassed\npassed\n" {
		t.Errorf("it ended with %v after %q", err, output)
	}
}

func TestArm_RejectsInvalidOrders(t *testing.T) {
	for _, orders := range []string{"", "nowhere:kill", "written", "written:explode", "written:kill:0", "written:kill:x", "written:jump=soon", "written:kill,", "a:b:c:d"} {
		if _, err := crashpoint.Arm(orders, nil, nil); err == nil {
			t.Errorf("%q is accepted", orders)
		}
	}
	if _, err := crashpoint.Arm("none", nil, nil); err != nil {
		t.Error(err)
	}
}

// Fails if Go changes the layout of time.Time.
func TestClock_JumpLeavesMonotonicTime(t *testing.T) {
	for _, by := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		clock := new(crashpoint.Clock)
		before, first := time.Now(), clock.Now()
		clock.Jump(by)
		second, after := clock.Now(), time.Now()
		if passed := second.Sub(first); passed < 0 || passed > after.Sub(before) {
			t.Errorf("%v: %v elapsed across the jump", by, passed)
		}
		if off := time.Duration(second.UnixNano() - first.UnixNano()); off < by || off > by+after.Sub(before) {
			t.Errorf("%v: the wall clock advanced by %v", by, off)
		}
	}
}

func TestWrite_PassesTwoPointsForEachKind(t *testing.T) {
	id := ledger.Identity{ReminderID: "r", Type: "t", Channel: "c"}
	now := time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)
	waiting := ledger.Entry{
		Identity: id, SendKey: id.SendKey(), State: ledger.Waiting, Version: 1, Reason: "x",
		Owner: ledger.OwnerLedger, Due: ledger.At(now), Wake: ledger.At(now), Provider: "mail",
	}
	rules := ledger.Rules{
		Lease: time.Minute, Margin: time.Second, MaxAttempts: 4, MaxLeaseExpirations: 5, ChannelRoute: ledger.Route{Provider: "mail"},
		BoundRoute: ledger.Route{Provider: "mail"}, RetriesBy: ledger.OwnerLedger,
	}
	trigger := ledger.Trigger{Origin: ledger.OriginWorker}
	facts := ledger.Facts{Slot: ledger.Slot{Provider: "mail", Held: true}, Holder: "h"}

	claimed := ledger.Decide(waiting, trigger, facts, rules, now).Change
	held := claimed.Entry
	held.LeaseUntil, held.ClaimedAt = ledger.At(now.Add(time.Minute)), ledger.At(now)
	attempt := ledger.Attempt{Trigger: trigger, Holder: "h", Provider: "mail", Outcome: ledger.Outcome{Result: ledger.ResultAccepted}}
	unsent := attempt
	unsent.Outcome.Result = ledger.ResultNotCalled
	unrouted := rules
	unrouted.BoundRoute, unrouted.ChannelRoute = ledger.Route{}, ledger.Route{}
	doubtful := waiting
	doubtful.DoubtSince, doubtful.Fingerprint = now, "f"
	sent := ledger.Settle(held, attempt, rules, now)

	for kind, change := range map[string]ledger.Change{
		"claim": claimed, "settle": sent, "late": ledger.SettleLate(held, attempt), "other": ledger.Tombstone(id, trigger, now),
		"expire": ledger.Decide(held, trigger, facts, rules, now.Add(2*time.Minute)).Change,
		"wait":   ledger.Decide(doubtful, trigger, facts, unrouted, now).Change,
	} {
		passed := passedBy(t, 2, func(p *crashpoint.Points) {
			_, _ = p.Write(change, func() (ledger.Entry, error) { return change.Entry, nil })
		})
		if want := []crashpoint.Point{crashpoint.Point("before_" + kind), crashpoint.Point(kind + "_unseen")}; !slices.Equal(passed, want) {
			t.Errorf("%s passes %q", kind, passed)
		}
	}
	passed := passedBy(t, 1, func(p *crashpoint.Points) {
		change := ledger.Settle(held, unsent, rules, now)
		_, _ = p.Write(change, func() (ledger.Entry, error) { return ledger.Entry{}, ledger.ErrStale })
	})
	if want := []crashpoint.Point{"before_settle"}; !slices.Equal(passed, want) {
		t.Errorf("a stale settle without a call passes %q", passed)
	}
}

func TestAnswers_PassesPointsAndKeepsTheResponse(t *testing.T) {
	const body = `{"state": "sent"}`
	var answered *http.Response
	passed := passedBy(t, 3, func(p *crashpoint.Points) {
		site := httptest.NewServer(p.Answers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, body)
		})))
		defer site.Close()
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			req, err := http.NewRequestWithContext(t.Context(), method, site.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if answered, err = http.DefaultClient.Do(req); err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(answered.Body)
			_ = answered.Body.Close()
			if err != nil || string(content) != body || answered.StatusCode != http.StatusAccepted {
				t.Errorf("%s: %s %q, %v", method, answered.Status, content, err)
			}
		}
	})
	if want := []crashpoint.Point{crashpoint.Settled, crashpoint.HalfAnswered, crashpoint.Answered}; !slices.Equal(passed, want) {
		t.Errorf("passed %q, want %q", passed, want)
	}
}

func TestCall_PassesPointsInOrder(t *testing.T) {
	order := []crashpoint.Point{crashpoint.Claimed, crashpoint.Connected, crashpoint.Written, crashpoint.Answer}
	for name, test := range map[string]struct {
		serve  http.HandlerFunc
		passes []crashpoint.Point
	}{
		"answered": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, order},
		"hung up":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, order[:3]},
	} {
		site := httptest.NewServer(test.serve)
		passed := passedBy(t, len(test.passes), func(p *crashpoint.Points) {
			p.Call(t.Context(), func(ctx context.Context) (o ledger.Outcome) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL, strings.NewReader("x"))
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_ = resp.Body.Close()
				}
				return o
			})
		})
		if !slices.Equal(passed, test.passes) {
			t.Errorf("%s: passed %q, want %q", name, passed, test.passes)
		}
		site.Close()
	}
}

// net/http reports a request as written while it is still in a buffer.
func TestCall_WrittenMeansTheProviderHasTheRequest(t *testing.T) {
	received, answer := make(chan struct{}), make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(received)
		<-answer
	}))
	defer site.Close()
	points, err := crashpoint.Arm("written:jump=0s", new(crashpoint.Clock), func(crashpoint.Point, string) {
		select {
		case <-received:
		case <-time.After(5 * time.Second):
			t.Error("the provider has not received the request")
		}
		close(answer)
	})
	if err != nil {
		t.Fatal(err)
	}
	points.Call(t.Context(), func(ctx context.Context) (o ledger.Outcome) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, site.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
		return o
	})
}

// passedBy returns the n points that are passed, in order. Each is armed with a clock jump of 0s.
func passedBy(t *testing.T, n int, do func(*crashpoint.Points)) []crashpoint.Point {
	t.Helper()
	var orders []string
	for _, at := range crashpoint.All() {
		orders = append(orders, string(at)+":jump=0s")
	}
	passing := make(chan crashpoint.Point, 32)
	points, err := crashpoint.Arm(strings.Join(orders, ","), new(crashpoint.Clock), func(at crashpoint.Point, _ string) { passing <- at })
	if err != nil {
		t.Fatal(err)
	}
	do(points)
	var passed []crashpoint.Point
	for range n {
		select {
		case at := <-passing:
			passed = append(passed, at)
		case <-time.After(10 * time.Second):
			t.Errorf("only %q were passed", passed)
			return passed
		}
	}
	if len(passing) > 0 {
		t.Errorf("passed %q, and then %q", passed, <-passing)
	}
	return passed
}
