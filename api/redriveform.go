package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// What a redrive is where its request does not say.
const (
	itemsDefault = 100
	rateDefault  = 10.0 // items a second
)

// keyHeader names the header by which a repeated request is known.
const keyHeader = "Idempotency-Key"

// asked is what a person asked of a redrive, as it is kept, with what was left out filled in. In one form, so
// that the same request has one hash: members in this order, times in UTC. It holds no recipient and no content.
type asked struct {
	Filter    *askedFilter `json:"filter,omitempty"`
	IDs       []string     `json:"ids,omitempty"`
	Limit     int          `json:"limit,omitempty"`
	Rate      float64      `json:"rate"`
	Deadline  time.Time    `json:"deadline,omitzero"`
	Permanent bool         `json:"permanent"`
	Reason    string       `json:"reason"`
}

// askedFilter names no person: what is asked of a redrive is kept, and an erasure does not reach it. One person's
// dead letters are redriven by their ids.
type askedFilter struct {
	Class    ledger.Class `json:"class,omitempty"`
	Type     string       `json:"type,omitempty"`
	Channel  string       `json:"channel,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Code     string       `json:"code,omitempty"`
	From     time.Time    `json:"from,omitzero"`
	To       time.Time    `json:"to,omitzero"`
}

func (f askedFilter) query() ledger.Query {
	return ledger.Query{
		Class: f.Class, Type: f.Type, Channel: f.Channel, Provider: f.Provider, Code: f.Code,
		From: f.From, To: f.To,
	}
}

// readRedrive reads what a person asks of a redrive, all faults at once; dry tells that it is to be foretold alone.
func (s *server) readRedrive(w http.ResponseWriter, r *http.Request, caller Caller) (ask ledger.RedriveRequest, dry bool, err error) {
	said, err := readForm(w, r)
	if err != nil {
		return ledger.RedriveRequest{}, false, err
	}
	var wanted asked
	wanted.Filter, wanted.IDs = said.items(s.MaxItems)
	wanted.Limit = said.limit(len(wanted.IDs), s.MaxItems)
	wanted.Rate = said.number("rate", rateDefault, 0.1, 100)
	wanted.Deadline = said.instant("deadline")
	if !wanted.Deadline.IsZero() && !wanted.Deadline.After(s.Now()) {
		said.fault("deadline", "must lie in the future")
	}
	wanted.Permanent = said.flag("permanent") || wanted.Filter != nil && wanted.Filter.Class == ledger.ClassPermanent
	dry = said.flag("dry_run")
	wanted.Reason = said.why()
	key := said.key(r.Header)
	if err := said.done(); err != nil {
		return ledger.RedriveRequest{}, false, err
	}
	return wanted.request(key, caller), dry, nil
}

// request is what was asked in the ledger's words, with its hash.
func (a asked) request(key string, caller Caller) ledger.RedriveRequest {
	text, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Errorf("api: a request cannot be kept: %w", err)) // texts, numbers and times always marshal
	}
	hash := sha256.Sum256(text)
	ask := ledger.RedriveRequest{
		Limit: a.Limit, Rate: a.Rate, Deadline: a.Deadline, Permanent: a.Permanent,
		Key: key, Hash: hex.EncodeToString(hash[:]), Asked: string(text), Act: actOf(caller, a.Reason),
	}
	if a.Filter != nil {
		ask.Filter = a.Filter.query()
	}
	for _, word := range a.IDs {
		id, _ := ledger.ParseEntryID(word) // it was read so
		ask.IDs = append(ask.IDs, id)
	}
	return ask
}

// items reads which dead letters are meant: by a filter or by their ids, and never all of them by mistake.
func (f *form) items(most int) (*askedFilter, []string) {
	_, filtered := f.members["filter"]
	_, named := f.members["ids"]
	if filtered == named {
		f.fault("filter", "is required where ids are not given, and goes without them")
	}
	var filter *askedFilter
	f.object("filter", func(within *form) { filter = within.filter() })
	ids := f.list("ids", most, "an entry's id, each once", func(word string) bool {
		_, ok := ledger.ParseEntryID(word)
		return ok
	})
	return filter, ids
}

// filter reads what dead letters have in common.
func (f *form) filter() *askedFilter {
	if len(f.members) == 0 {
		f.fault("", "must name at least one member")
	}
	word := func(name string) string { return f.text(name, false, aWord, isWord) }
	classes := ledger.DeadClasses()
	wanted := &askedFilter{
		Class: ledger.Class(f.text("class", false, "one of "+listed(classes), func(word string) bool {
			return slices.Contains(classes, ledger.Class(word))
		})),
		Type: word("type"), Channel: word("channel"), Provider: word("provider"), Code: word("code"),
		From: f.instant("from"), To: f.instant("to"),
	}
	if !ordered(wanted.From, wanted.To) {
		f.fault(notOrdered.Field, notOrdered.Problem)
	}
	return wanted
}

// limit reads how many items a redrive may have. Named ones are as many as they are.
func (f *form) limit(named, most int) int {
	limit, given := f.whole("limit", most)
	switch {
	case given && limit > 0 && named > limit:
		f.fault("ids", "must be no more than limit")
	case !given && named == 0:
		return min(itemsDefault, most)
	}
	return limit
}

// key reads the key by which a repeated request is known; empty where none is given.
func (f *form) key(h http.Header) string {
	keys := h.Values(keyHeader)
	if len(keys) == 0 {
		return ""
	}
	if len(keys) > 1 || !isWord(keys[0]) {
		f.fault(keyHeader, "must be given once, as "+aWord)
	}
	return keys[0]
}
