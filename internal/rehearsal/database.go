package rehearsal

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

const (
	rehearsalSuffix = "_rehearsal"
	longestName     = 63 // PostgreSQL truncates a longer one, possibly to the name of the configured database
)

// RehearsalDatabase returns the URL of the PostgreSQL database for the ledger of a rehearsal: on the same server and for
// the same user as the configured one, with "_rehearsal" appended to its name. It is never the configured one: a gateway
// processes every entry in its ledger, so a rehearsal would settle real entries at its fake provider, and a real gateway
// would send the entries of the rehearsal to a real one.
func RehearsalDatabase(configured string) (string, error) {
	u, err := url.Parse(configured)
	if err != nil {
		return "", errors.New("rehearse: database.url is not a URL") // the cause may contain a password
	}
	database := strings.TrimPrefix(u.Path, "/")
	for _, key := range []string{"dbname", "database", "service", "servicefile"} {
		if u.Query().Has(key) {
			return "", fmt.Errorf("rehearse: database.url names its database by %q; name it in the path, so that the name of the rehearsal's database can be derived", key)
		}
	}
	name := database + rehearsalSuffix
	switch {
	case database == "" || strings.Contains(database, "/"):
		return "", errors.New("rehearse: database.url names no database in its path")
	case len(name) > longestName:
		return "", fmt.Errorf("rehearse: the name of a database has at most %d bytes; with %q appended this one has %d", longestName, rehearsalSuffix, len(name))
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String(), nil
}
