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

// Defaults of a redrive.
const (
	itemsDefault = 100
	rateDefault  = 10.0 // items a second
)

// keyHeader is the header that identifies a repeated request.
const keyHeader = "Idempotency-Key"

// redriveBody is the request of a redrive as it is stored, with the defaults filled in. Its encoding is canonical, so
// that the same request always has the same hash: members in this order, times in UTC. It contains no recipient and no
// content.
type redriveBody struct {
	Filter    *redriveFilter `json:"filter,omitempty"`
	IDs       []string       `json:"ids,omitempty"`
	Limit     int            `json:"limit,omitempty"`
	Rate      float64        `json:"rate"`
	Deadline  time.Time      `json:"deadline,omitzero"`
	Permanent bool           `json:"permanent"`
	Reason    string         `json:"reason"`
}

// redriveFilter has no member that identifies a user: the request of a redrive is stored, and an erasure does not
// cover it. The dead letters of one user are redriven by their ids.
type redriveFilter struct {
	Class    ledger.Class `json:"class,omitempty"`
	Type     string       `json:"type,omitempty"`
	Channel  string       `json:"channel,omitempty"`
	Provider string       `json:"provider,omitempty"`
	Code     string       `json:"code,omitempty"`
	From     time.Time    `json:"from,omitzero"`
	To       time.Time    `json:"to,omitzero"`
}

func (f redriveFilter) query() ledger.Query {
	return ledger.Query{
		Class: f.Class, Type: f.Type, Channel: f.Channel, Provider: f.Provider, Code: f.Code,
		From: f.From, To: f.To,
	}
}

// readRedrive reads the request of a redrive, and returns all faults at once; dryRun asks for a preview only.
func (s *server) readRedrive(w http.ResponseWriter, r *http.Request, caller Caller) (request ledger.RedriveRequest, dryRun bool, err error) {
	body, err := readForm(w, r)
	if err != nil {
		return ledger.RedriveRequest{}, false, err
	}
	var wanted redriveBody
	wanted.Filter, wanted.IDs = body.items(s.MaxItems)
	wanted.Limit = body.limit(len(wanted.IDs), s.MaxItems)
	wanted.Rate = body.number("rate", rateDefault, 0.1, 100)
	wanted.Deadline = body.instant("deadline")
	if !wanted.Deadline.IsZero() && !wanted.Deadline.After(s.Now()) {
		body.fault("deadline", "must be in the future")
	}
	wanted.Permanent = body.flag("permanent") || wanted.Filter != nil && wanted.Filter.Class == ledger.ClassPermanent
	dryRun = body.flag("dry_run")
	wanted.Reason = body.reason()
	key := body.key(r.Header)
	if err := body.done(); err != nil {
		return ledger.RedriveRequest{}, false, err
	}
	return wanted.request(key, caller), dryRun, nil
}

// request returns the request in the ledger's types, with its hash.
func (b redriveBody) request(key string, caller Caller) ledger.RedriveRequest {
	text, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Errorf("api: encoding a redrive request failed: %w", err)) // strings, numbers and times always marshal
	}
	hash := sha256.Sum256(text)
	request := ledger.RedriveRequest{
		Limit: b.Limit, Rate: b.Rate, Deadline: b.Deadline, Permanent: b.Permanent,
		IdempotencyKey: key, RequestHash: hex.EncodeToString(hash[:]), Request: string(text), Audit: auditOf(caller, b.Reason),
	}
	if b.Filter != nil {
		request.Filter = b.Filter.query()
	}
	for _, entryID := range b.IDs {
		id, _ := ledger.ParseEntryID(entryID) // items has checked it
		request.IDs = append(request.IDs, id)
	}
	return request
}

// items reads which dead letters to redrive: a filter or ids, so that never all of them are taken by mistake.
func (f *form) items(most int) (*redriveFilter, []string) {
	_, filtered := f.members["filter"]
	_, named := f.members["ids"]
	if filtered == named {
		f.fault("filter", "is required unless ids are given, and excludes them")
	}
	var filter *redriveFilter
	f.object("filter", func(within *form) { filter = within.filter() })
	ids := f.list("ids", most, "entry ids, each given once", func(word string) bool {
		_, ok := ledger.ParseEntryID(word)
		return ok
	})
	return filter, ids
}

// filter reads the filter of a redrive.
func (f *form) filter() *redriveFilter {
	if len(f.members) == 0 {
		f.fault("", "must have at least one member")
	}
	word := func(name string) string { return f.text(name, false, wordProblem, isWord) }
	classes := ledger.DeadClasses()
	wanted := &redriveFilter{
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

// limit reads the largest number of items; a redrive by ids needs none, and has as many as there are ids.
func (f *form) limit(named, most int) int {
	limit, given := f.whole("limit", most)
	switch {
	case given && limit > 0 && named > limit:
		f.fault("ids", "must not be more than limit")
	case !given && named == 0:
		return min(itemsDefault, most)
	}
	return limit
}

// key reads the idempotency key; empty where none is given.
func (f *form) key(h http.Header) string {
	keys := h.Values(keyHeader)
	if len(keys) == 0 {
		return ""
	}
	if len(keys) > 1 || !isWord(keys[0]) {
		f.fault(keyHeader, "must be given at most once, as "+wordProblem)
	}
	return keys[0]
}
