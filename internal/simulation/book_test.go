package simulation_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// book is what was seen of the redrives.
type book struct {
	redrives     []string // in their order
	laidOut      map[turned]ledger.RedriveItem
	permanent    map[string]bool
	put          map[turned][]*replica // who put an entry to work, for which redrive; nobody twice
	results      map[place]int
	halted       map[string]bool
	after        map[string]map[*replica]int // what each put to work after the cancel
	everReopened map[ledger.Identity]bool
	answered     map[string]string // the redrive that a key was answered with
}

// turned is one entry's turn in a redrive.
type turned struct {
	redrive string
	ledger.Identity
}

type place struct {
	redrive string
	n       int
}

func newBook() book {
	return book{
		laidOut: map[turned]ledger.RedriveItem{}, permanent: map[string]bool{}, put: map[turned][]*replica{},
		results: map[place]int{}, halted: map[string]bool{}, after: map[string]map[*replica]int{},
		everReopened: map[ledger.Identity]bool{}, answered: map[string]string{},
	}
}

func (w *world) laysOut(r ledger.Redrive, items []ledger.RedriveItem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redrives = append(w.redrives, r.ID)
	w.permanent[r.ID] = r.Permanent
	w.after[r.ID] = map[*replica]int{}
	for _, item := range items {
		w.laidOut[turned{r.ID, item.Identity}] = item
	}
}

// moves writes the redrive's own row.
func (w *world) moves(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	before, _ := w.store().Redrive(context.Background(), r.ID)
	items, _ := w.store().RedriveItems(context.Background(), r.ID)
	stands, err := commit(ctx, w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (ledger.Redrive, error) {
		return s.SwapRedrive(ctx, r, act)
	})
	if err != nil {
		return stands, err
	}
	open := slices.ContainsFunc(items, func(item ledger.RedriveItem) bool { return item.Result == "" })
	w.mu.Lock()
	fell := !w.fellBack.IsZero()
	w.mu.Unlock()
	switch {
	case fell: // a result may be forgotten that its replica knows of
	case before.State != ledger.RedriveRunning:
		w.breaks("redrive %s: %s, and moves to %s", r.ID, before.State, stands.State)
	case stands.State == ledger.RedriveDone && open:
		w.breaks("redrive %s: done, and an item had no turn", r.ID)
	case before.Holder != "" && stands.Holder != "" && stands.Holder != before.Holder && before.LeaseUntil.On(w.now()).After(w.now()):
		w.breaks("redrive %s: taken from %s before its lease is over", r.ID, before.Holder)
	}
	if stands.State == ledger.RedriveCancelled {
		w.mu.Lock()
		w.halted[r.ID] = true
		w.mu.Unlock()
	}
	return stands, nil
}

// reopens checks the write by which a redrive puts a dead letter to work, or closes one that was read at last.
func (w *world) reopens(before ledger.Entry, c ledger.Change, unkept error) {
	line := c.Event
	if line == nil || line.Origin != ledger.OriginRedrive || before.Absent() {
		return
	}
	id, turn := c.Entry.Identity, turned{line.Message, c.Entry.Identity}
	w.mu.Lock()
	item, laid := w.laidOut[turn]
	w.put[turn] = append(w.put[turn], nil)
	times, permanent, sent, taken := len(w.put[turn]), w.permanent[line.Message], len(w.sends[id]), w.risked[id]
	w.everReopened[id] = true
	w.tally.counted[reopened]++
	if line.Reason == ledger.ReasonReread {
		w.tally.counted[rereads]++
	}
	fell := !w.fellBack.IsZero()
	w.mu.Unlock()
	switch {
	case fell: // what the book and the entry say of each other may be forgotten
	case before.State != ledger.Dead:
		w.breaks("%v: redriven while it is %s", id, before.State)
	case before.InDoubt():
		w.breaks("%v: redriven in doubt", id)
	case !laid:
		w.breaks("%v: redriven by %s, of which it is no item", id, line.Message)
	case item.Version != before.Version:
		w.breaks("%v: redriven at version %d, laid out at %d", id, before.Version, item.Version)
	case times > 1:
		w.breaks("%v: put to work %d times by one redrive", id, times)
	case unkept != nil:
		w.breaks("%v: redriven, and what it says is not kept: %v", id, unkept)
	case before.Redrives >= most:
		w.breaks("%v: redriven for the %dth time", id, before.Redrives+1)
	case before.Class == ledger.ClassPermanent && !permanent:
		w.breaks("%v: redriven, though refused for good and not asked for by name", id)
	case sent > taken && line.Reason != ledger.ReasonReread:
		w.breaks("%v: redriven after %d sends, with %d risks taken", id, sent, taken)
	}
}

// afterCancel checks that nobody puts more than the one item to work that was on its way when a person cancelled.
func (w *world) afterCancel(redrive string, r *replica) {
	w.mu.Lock()
	more := false
	for turn, by := range w.put {
		if turn.redrive == redrive && by[len(by)-1] == nil {
			by[len(by)-1] = r
		}
	}
	if w.halted[redrive] {
		w.after[redrive][r]++
		more = w.after[redrive][r] > 1 && w.fellBack.IsZero()
	}
	w.mu.Unlock()
	if more {
		w.breaks("redrive %s: %s goes on after the cancel", redrive, r.name)
	}
}

// settles records what became of an item, and holds it to what was written.
func (w *world) settles(ctx context.Context, holder string, item ledger.RedriveItem, r *replica) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	_, err := commit(ctx, w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (struct{}, error) {
		return struct{}{}, s.SettleItem(ctx, holder, item)
	})
	if err != nil {
		return err
	}
	turn, at := turned{item.Redrive, item.Identity}, place{item.Redrive, item.Place}
	w.mu.Lock()
	w.results[at]++
	put, times, fell := w.put[turn], w.results[at], !w.fellBack.IsZero()
	_, gone := w.buried[item.Identity]
	done := item.Result == ledger.ItemReopened || item.Result == ledger.ItemReread
	switch {
	case done && len(put) > 0 && put[0] != nil && put[0] != r:
		w.tally.counted[resumed]++
	case !done:
		w.tally.counted[skipped]++
	}
	w.mu.Unlock()
	switch {
	case fell:
	case times > 1:
		w.breaks("redrive %s: item %d has %d results", item.Redrive, item.Place, times)
	case done && len(put) != 1:
		w.breaks("%v: %s says redrive %s, and it was put to work %d times", item.Identity, item.Result, item.Redrive, len(put))
	case !done && len(put) > 0 && !gone: // whoever put it to work, and whatever reply was lost
		w.breaks("%v: %s says redrive %s, and it was put to work", item.Identity, item.Result, item.Redrive)
	}
	return nil
}

// rememberedBy checks that nothing is claimed that was erased or can not be sent, and that what comes again after
// its entry was deleted is refused for its age.
func (w *world) rememberedBy(before, stands ledger.Entry, c ledger.Change, claimed bool) {
	id := stands.Identity
	w.mu.Lock()
	_, erased := w.erased[id]
	last, buried := w.buried[id]
	refused := stands.State == ledger.Dropped && stands.Reason == ledger.ReasonBeforeMemory
	if before.Absent() && buried && refused {
		w.tally.counted[tooOld]++
	}
	w.mu.Unlock()
	tombstone := stands.State == ledger.Dropped && stands.CancelAsked
	switch {
	case claimed && erased:
		w.breaks("%v: claimed after an erasure", id)
	case before.Absent() && buried && !refused && !tombstone && stands.Type != ledger.MalformedType && !stands.Published.After(last):
		w.breaks("%v: comes again after its entry was deleted, and is %s (%s); published %s, last written %s", id,
			stands.State, stands.Reason, clock(stands.Published), clock(last))
	}
	if claimed {
		if _, err := w.store().Payload(context.Background(), id); err != nil {
			w.breaks("%v: claimed, and what it says is gone", id)
		}
	}
}

// forgetsBy checks what a purge, an erasure or a discard takes out, and remembers what may not be sent any more.
func (w *world) forgetsBy(before, stands ledger.Entry, c ledger.Change) {
	id, now := stands.Identity, w.latest()
	span := map[ledger.State]time.Duration{ledger.Sent: w.keep.Sent, ledger.Dead: w.keep.Dead, ledger.Dropped: w.keep.Dropped}[before.State]
	if c.Forget != ledger.ForgetNothing {
		_, err := w.store().Payload(context.Background(), id)
		switch {
		case err == nil:
			w.breaks("%v: forgotten, and its payload is there", id)
		case c.Forget == ledger.ForgetPerson:
			if stands.UserID != "" || w.read(id).ContentHash != "" {
				w.breaks("%v: erased, and its person or what it said is there", id)
			}
		case c.Event == nil || c.Event.Origin != ledger.OriginPurge: // it was read at last, and is another entry's
		case !before.Final():
			w.breaks("%v: purged while it is %s", id, before.State)
		case stands.State != before.State || stands.Reason != before.Reason:
			w.breaks("%v: %s by a purge of what is %s", id, stands.State, before.State)
		case span == 0 || now.Before(before.Updated.Add(span)):
			w.breaks("%v: purged %v after its last write, and kept for %v", id, now.Sub(before.Updated), span)
		}
	}
	ends := stands.State == ledger.Dropped && (stands.Reason == ledger.ReasonDiscarded || stands.Reason == ledger.ReasonErased)
	if ends && before.State != ledger.Dead && before.State != ledger.Waiting && before.Reason != stands.Reason {
		w.breaks("%v: %s while it was %s", id, stands.Reason, before.State)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Forget == ledger.ForgetPayload && c.Event != nil && c.Event.Origin == ledger.OriginPurge:
		w.tally.counted[purged]++
	case c.Forget == ledger.ForgetPerson:
		w.tally.counted[erasures]++
		w.erased[id] = before.Holder
	}
	if _, known := w.dropped[id]; ends && !known {
		w.dropped[id] = time.Now()
	}
}

// buries deletes an entry, and keeps what its timeline tells of calls. What it promised is not owed any more; what
// it sent stays sent.
func (w *world) buries(ctx context.Context, e ledger.Entry) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	id := e.Identity
	story, _ := w.store().Story(context.Background(), id)
	_, err := commit(ctx, w, id, func(ctx context.Context, s dbtest.Store) (struct{}, error) { return struct{}{}, s.Delete(ctx, e) })
	if err != nil {
		return err
	}
	switch before, now := story.Entry, w.latest(); {
	case !before.Final():
		w.breaks("%v: deleted while it is %s", id, before.State)
	case now.Before(before.Updated.Add(w.keep.Entry)):
		w.breaks("%v: deleted %v after its last write, inside the memory of %v", id, now.Sub(before.Updated), w.keep.Entry)
	}
	told := w.accounted(id, story.Timeline)
	w.audited(id, story.Acts)
	w.unsent(id, story)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.past[id] = len(w.sends[id])
	w.buried[id] = story.Entry.Updated
	w.carried[id] += told
	w.tally.counted[deleted]++
	for _, r := range w.everybody {
		for _, line := range story.Timeline {
			if strings.HasPrefix(line.Holder, r.name+".") && (line.Kind == ledger.EventAttempt || line.Kind == ledger.EventLate) {
				w.heard[heard{id, r}]--
			}
		}
	}
	delete(w.acked, id)
	delete(w.barred, id)
	delete(w.dropped, id)
	delete(w.proven, id)
	delete(w.erased, id)
	return nil
}

// latest is the later of the two clocks: a walk goes by its replica's, and what it judges was dated by the ledger's.
func (w *world) latest() time.Time {
	if now := time.Now(); now.After(w.now()) {
		return now
	}
	return w.now()
}

// gone tells whether a reminder's entry was ever deleted.
func (w *world) gone(id ledger.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, buried := w.buried[id]
	_, erased := w.erased[id]
	return buried || erased
}

// unsent checks that what is dead or dropped was not sent, under the entry that stands.
func (w *world) unsent(id ledger.Identity, story ledger.Story) {
	e := story.Entry
	w.mu.Lock()
	sent, taken, forgot := len(w.sends[id])-w.past[id], w.risked[id], w.forgotten[id]
	w.mu.Unlock()
	if (e.State == ledger.Dead || e.State == ledger.Dropped) && sent > 0 && taken == 0 && !decided(story.Timeline) && !forgot {
		w.breaks("%v: %s (%s), and sent", id, e.State, e.Reason)
	}
}

func (w *world) carries(id ledger.Identity) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.carried[id]
}

// remains checks that nothing of a person came back after the erasure.
func (w *world) remains(id ledger.Identity, story ledger.Story) {
	w.mu.Lock()
	_, erased := w.erased[id]
	w.mu.Unlock()
	switch {
	case !erased:
	case story.Payload != nil || story.Entry.UserID != "" || story.Entry.ContentHash != "":
		w.breaks("%v: erased, and something of the person is there", id)
	case len(story.Conflicts) > 0:
		w.breaks("%v: erased, and a hash of other content is there", id)
	}
}

// restOfRedrives checks that every redrive ended, and says of its items what was written.
func (w *world) restOfRedrives() {
	w.mu.Lock()
	all, halted, results, fell := slices.Clone(w.redrives), maps.Clone(w.halted), maps.Clone(w.results), !w.fellBack.IsZero()
	w.mu.Unlock()
	for _, id := range all {
		r, err := w.store().Redrive(context.Background(), id)
		list, _ := w.store().RedriveItems(context.Background(), id)
		w.count(items, len(list))
		if err != nil || fell {
			continue
		}
		if r.State == ledger.RedriveRunning || (r.State == ledger.RedriveCancelled) != halted[id] || r.Size != len(list) {
			w.breaks("redrive %s: does not come to rest: %s, %d items", id, r.State, len(list))
		}
		for _, item := range list {
			told := results[place{id, item.Place}]
			switch {
			case item.Result == "" && r.State == ledger.RedriveCancelled:
				w.count(turnless, 1)
			case (item.Result != "") != (told == 1):
				w.breaks("redrive %s: item %d says %q, and was settled %d times", id, item.Place, item.Result, told)
			}
		}
	}
}
