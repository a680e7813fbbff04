package ledger_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func theAct() Act { return Act{ID: "act-1", By: "ada", Role: "operator", Why: "a test"} }

func ofUser(e *Entry) { e.UserID = "user-77" }

// mustNeverClaim visits an entry in every way, now and much later, and does with it whatever else might put it
// to work.
func mustNeverClaim(t *testing.T, name string, found Entry) {
	t.Helper()
	for _, kind := range []ContractKind{Idempotent, Lookup, Blind} {
		for _, policy := range []OnUnknown{Hold, AssumeSent, Resend} {
			r := rules(kind, onUnknown(policy))
			for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker, OriginRedrive} {
				for _, later := range []time.Duration{0, lease, 10 * time.Minute} {
					mustComeToRest(t, name, found, visit(origin), r, noon().Add(later))
				}
			}
			e := found
			for range asks() {
				if change, news := Asked(e, question(NotFound, ""), r, noon()); news {
					e = stored(change, noon())
				}
			}
			if e.State == Waiting {
				t.Errorf("%s: its provider does not know it under %s/%s, and it is sent again", name, kind, policy)
			}
		}
	}
	by := reopening(found, byName, granted(time.Hour))
	if _, skip := Reopen(found, by, rules(Blind), noon()); skip == "" {
		t.Errorf("%s: a redrive takes it", name)
	}
	if change, err := Resolve(found, verdict(VerdictNotSent, found), noon()); err == nil && change.Entry.State != Dropped {
		t.Errorf("%s: a person calls it unsent, and it is %s", name, change.Entry.State)
	}
}

// mustComeToRest follows one visit to its end, which is no claim.
func mustComeToRest(t *testing.T, name string, e Entry, v Visit, r Rules, now time.Time) {
	t.Helper()
	for range 6 {
		step := Meet(e, v, ready(), r, now)
		if step.Verb == Answer {
			return
		}
		if next := step.Change.Entry; step.Verb != Swap || next.Holder == "mine" {
			t.Errorf("%s: %s claims it after %v", name, v.Origin, now.Sub(noon()))
			return
		}
		e = stored(step.Change, now)
	}
	t.Errorf("%s: %s never comes to an end", name, v.Origin)
}

func TestWhatAnEraseLeaves(t *testing.T) {
	inDoubt := doubted(time.Minute)
	abandoned := func(e *Entry) { e.Reason = ReasonAbandoned }
	for name, row := range map[string]struct {
		found  Entry
		want   standing
		cancel bool
	}{
		"waiting":              {entry(Waiting), standing{Dropped, "", ReasonErased}, true},
		"waiting, ours":        {entry(Waiting, ownedBy(OwnerLedger)), standing{Dropped, "", ReasonErased}, true},
		"waiting in doubt":     {entry(Waiting, inDoubt), standing{Unknown, "", ReasonErased}, true},
		"dead":                 {entry(Dead), standing{Dropped, ClassExhausted, ReasonErased}, true},
		"dead, malformed":      {entry(Dead, diedOf(ClassMalformed)), standing{Dropped, ClassMalformed, ReasonErased}, true},
		"sending":              {entry(Sending), standing{Sending, "", ReasonClaimed}, true},
		"sending in doubt":     {entry(Sending, inDoubt), standing{Sending, "", ReasonClaimed}, true},
		"sending, lapsed":      {entry(Sending, lapsed), standing{Sending, "", ReasonClaimed}, true},
		"unknown":              {entry(Unknown), standing{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"unknown, cancelled":   {entry(Unknown, cancelAsked), standing{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"unknown, to be asked": {entry(Unknown, func(e *Entry) { e.AskAt = At(noon()) }), standing{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"sent":                 {entry(Sent), standing{Sent, "", ReasonAccepted}, false},
		"sent, assumed":        {entry(Sent, assumed), standing{Sent, "", ReasonAssumed}, false},
		"dropped":              {entry(Dropped), standing{Dropped, "", ReasonExpired}, false},
		"abandoned in doubt":   {entry(Dropped, inDoubt, abandoned), standing{Dropped, "", ReasonAbandoned}, false},
	} {
		found := row.found
		ofUser(&found)
		change := Erase(found, theAct())
		e := change.Entry
		mustStand(t, e, row.want)
		if e.UserID != "" || e.CancelAsked != row.cancel || change.Forget != ForgetPerson || change.Payload != nil {
			t.Errorf("%s: user %q, cancel %t, forgets %d", name, e.UserID, e.CancelAsked, change.Forget)
		}
		ev := Event{Kind: EventDecision, State: row.want.State, Reason: ReasonErased, Origin: OriginPerson, Source: "ada", Provider: "mail"}
		if *change.Event != ev {
			t.Errorf("%s: told as %+v", name, change.Event)
		}
		if e.DoubtSince != found.DoubtSince || e.SendKey != found.SendKey || e.Receipt != found.Receipt || e.Holder != found.Holder ||
			e.LeaseUntil != found.LeaseUntil || e.Deadline != found.Deadline || e.Redrives != found.Redrives {
			t.Errorf("%s: it moved more: %+v", name, e)
		}
		if row.want.State == found.State { // what it says of the send stays, to the letter
			want := found
			want.UserID, want.CancelAsked = "", row.cancel
			if e != want {
				t.Errorf("%s:\n%+v, want\n%+v", name, e, want)
			}
		}
		mustNeverClaim(t, name, stored(change, noon()))
	}
}

func TestAnErasedOneIsFoundWhereItStoodByALaterDelivery(t *testing.T) {
	for name, found := range map[string]Entry{"sent": entry(Sent), "dead": entry(Dead), "waiting": entry(Waiting), "dropped": entry(Dropped)} {
		e := stored(Erase(found, theAct()), noon())
		step := Meet(e, visit(OriginPush), ready(), rules(Blind), noon())
		if reply := ReplyFor(e, noon()); step.Verb != Answer || !reply.Ack {
			t.Errorf("%s: verb %d, ack %t", name, step.Verb, reply.Ack)
		}
		if change := Late(e, attempt(ResultAccepted, 0)); change.Entry.State != Sent || change.Entry.UserID != "" {
			t.Errorf("%s: accepted after all, and %s", name, change.Entry.State)
		}
	}
}

// The holder is on its way with what it read, and tells the truth; nobody may try again.
func TestAHolderThatSettlesAfterAnErase(t *testing.T) {
	dropped, unknown := standing{Dropped, "", ReasonCancelled}, standing{Unknown, ClassUnknown, ReasonCancelled}
	for _, result := range Results() {
		want := map[Result]standing{ResultAccepted: {Sent, "", ReasonAccepted}, ResultUnknown: unknown}
		for _, r := range []Rules{rules(Idempotent), rules(Lookup), rules(Blind), rules(Blind, onUnknown(AssumeSent)), rules(Blind, onUnknown(Resend)), rules(Lookup, onUnknown(Resend))} {
			for _, doubt := range []bool{false, true} {
				found := entry(Sending, ofUser)
				if doubt {
					doubted(time.Minute)(&found)
				}
				e := stored(Erase(found, theAct()), noon())
				e = stored(Settle(e, attempt(result, time.Second), r, noon()), noon())
				w, ends := want[result]
				switch {
				case ends:
				case doubt:
					w = standing{Unknown, e.Class, ReasonCancelled}
				default:
					w = standing{Dropped, e.Class, dropped.Reason}
				}
				mustStand(t, e, w)
				if e.UserID != "" || !e.CancelAsked || e.Attempts != count(result != ResultNotCalled) {
					t.Errorf("%s: user %q, cancel %t, %d attempts", result, e.UserID, e.CancelAsked, e.Attempts)
				}
				mustNeverClaim(t, "settled "+result.String(), e)
			}
		}
	}
}

func TestTheAuditOfAnEraseHoldsNoPerson(t *testing.T) {
	for name, e := range everywhere() {
		ofUser(&e)
		change := Erase(e, theAct())
		if text := change.Act.Before + change.Act.After + change.Act.Verb + change.Event.Source + change.Event.Message; strings.Contains(text, "user-77") {
			t.Errorf("%s: the user stands in %s", name, text)
		}
	}
	mustTell(t, Erase(entry(Dead, ofUser), theAct()), "erase",
		`{"state":"dead","class":"exhausted","reason":"budget_spent","version":7}`,
		`{"state":"dropped","class":"exhausted","reason":"erased","version":8}`)
	mustTell(t, Erase(entry(Sent, ofUser), theAct()), "erase",
		`{"state":"sent","reason":"accepted","receipt":"receipt","version":7}`,
		`{"state":"sent","reason":"accepted","receipt":"receipt","version":8}`)
}

func TestAPurgeAddsItsLineAndChangesNothing(t *testing.T) {
	abandoned := entry(Dropped, doubted(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	for _, e := range []Entry{entry(Sent), entry(Sent, assumed), entry(Dead, ofUser), entry(Dropped), abandoned} {
		change := Purge(e)
		told := Event{Kind: EventDecision, State: e.State, Reason: ReasonPurged, Origin: OriginPurge, Provider: "mail"}
		if change.Entry != e || *change.Event != told || change.Forget != ForgetPayload || change.Act != nil || change.Payload != nil {
			t.Errorf("%s: %+v, told as %+v", e.State, change, change.Event)
		}
	}
	// By version, whoever is first keeps the other from what it was about to do.
	e := entry(Dead)
	purged := stored(Purge(e), noon())
	if _, skip := Reopen(purged, reopening(e), rules(Blind), noon()); skip != SkipMoved {
		t.Errorf("purged since it was laid out: %q", skip)
	}
}

func TestOnlyWhatHasComeToRestAges(t *testing.T) {
	const day = 24 * time.Hour
	keep := Retention{Sent: 1 * day, Dead: 2 * day, Dropped: 3 * day, Entry: 10 * day}
	spans := map[State]time.Duration{Sent: keep.Sent, Dead: keep.Dead, Dropped: keep.Dropped}
	for _, s := range States() {
		for _, age := range []time.Duration{0, keep.Sent, keep.Dead, keep.Dropped, keep.Entry, 100 * day} {
			for _, off := range []time.Duration{-time.Microsecond, 0, time.Microsecond} {
				for _, payload := range []bool{true, false} {
					k := Kept{Entry: entry(s, func(e *Entry) { e.Updated = noon().Add(-age - off) }), Payload: payload}
					span, final := spans[s]
					want := AgeingNone
					switch {
					case final && age+off > keep.Entry:
						want = AgeingEntry
					case final && payload && age+off > span:
						want = AgeingPayload
					}
					if got := keep.Aged(k, noon()); got != want {
						t.Errorf("%s after %v, payload %t: %d, want %d", s, age+off, payload, got, want)
					}
					if got := (Retention{}).Aged(k, noon()); got != AgeingNone {
						t.Errorf("%s after %v is to be kept for ever, and %d", s, age+off, got)
					}
				}
			}
		}
	}
}

// Each span counts for itself: one that is left out keeps for ever, whatever the others say.
func TestASpanThatIsLeftOutKeepsForEver(t *testing.T) {
	old := func(s State) Kept {
		return Kept{Entry: entry(s, func(e *Entry) { e.Updated = noon().Add(-1000 * time.Hour) }), Payload: true}
	}
	for _, s := range []State{Sent, Dead, Dropped} {
		others := Retention{Sent: time.Hour, Dead: time.Hour, Dropped: time.Hour}
		switch s {
		case Sent:
			others.Sent = 0
		case Dead:
			others.Dead = 0
		default:
			others.Dropped = 0
		}
		if got := others.Aged(old(s), noon()); got != AgeingNone {
			t.Errorf("%s: %d", s, got)
		}
		if got := (Retention{Entry: time.Hour}).Aged(old(s), noon()); got != AgeingEntry {
			t.Errorf("%s, the entry's span alone: %d", s, got)
		}
	}
}
