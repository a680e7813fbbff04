package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const (
	rehearsalSuffix = "_rehearsal"
	longestName     = 63 // PostgreSQL cuts a longer one, back to the very name that must not be met
)

// RehearsalDatabase is the PostgreSQL database in which a rehearsal keeps its ledger: on the same server and
// for the same user as the given one, with "_rehearsal" behind its name. It is never the given one: a gateway
// looks after everything that it finds in its ledger, so a rehearsal among real entries would settle them at
// its own provider, and a real gateway would send the rehearsal's to a real one.
func RehearsalDatabase(configured string) (string, error) {
	u, err := url.Parse(configured)
	if err != nil {
		return "", errors.New("rehearse: database.url is no URL") // its text may hold a password
	}
	database := strings.TrimPrefix(u.Path, "/")
	for _, key := range []string{"dbname", "database", "service", "servicefile"} {
		if u.Query().Has(key) {
			return "", fmt.Errorf("rehearse: database.url names its database by %q; name it in the path, so that the rehearsal's can be told apart", key)
		}
	}
	name := database + rehearsalSuffix
	switch {
	case database == "" || strings.Contains(database, "/"):
		return "", errors.New("rehearse: database.url names no database in its path, so there is none to stand beside")
	case len(name) > longestName:
		return "", fmt.Errorf("rehearse: a database's name has at most %d bytes; with %q behind it, this one has %d", longestName, rehearsalSuffix, len(name))
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}
