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
