package ledger

import (
	"encoding/json"
	"time"
)

// Act is one line of the audit: what a person, or whoever holds a person's token, did. Lines are only ever
// added, in the commit of what they tell of.
type Act struct {
	Identity        // of the entry acted on; zero for an act on no entry
	ID       string // a token nobody used before
	At       time.Time
	By       string // the caller's name
	Role     string
	Verb     string
	Why      string // the person's own words
	Before   string // JSON, as far as the verb has any
	After    string
}

// byPerson is a change that a person makes, with its lines in the timeline and in the audit.
func byPerson(before, next Entry, verb string, act Act) Change {
	act.Identity, act.Verb = before.Identity, verb
	written := next
	written.Version++
	act.Before, act.After = standing(before), standing(written)
	event := decision(Visit{Origin: OriginPerson, Source: act.By})
	return Change{Entry: next, Event: told(next, event), Act: &act}
}

// standing is an entry as the audit shows it: no recipient and no content.
func standing(e Entry) string {
	text, _ := json.Marshal(struct {
		State   State  `json:"state"`
		Class   Class  `json:"class,omitempty"`
		Reason  Reason `json:"reason"`
		Receipt string `json:"receipt,omitempty"`
		Version int64  `json:"version,omitempty"`
	}{e.State, e.Class, e.Reason, e.Receipt, e.Version}) // strings and a number always marshal
	return string(text)
}

// standing is a gate as the audit shows it.
func (g Gate) standing() string {
	until, _ := g.ClosedUntil.Fixed()
	shown := struct {
		Paused      bool   `json:"paused"`
		ClosedUntil string `json:"closed_until,omitempty"`
		Class       Class  `json:"class,omitempty"`
	}{Paused: g.Paused, Class: g.Class}
	if !until.IsZero() {
		shown.ClosedUntil = until.UTC().Format(time.RFC3339)
	}
	text, _ := json.Marshal(shown)
	return string(text)
}
