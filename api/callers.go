package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/internal/ingest"
)

// Role says what a caller may do.
type Role string

const (
	// Producer requests reminders and cancels them. It is separate from the other roles.
	Producer Role = "producer"
	// Support reads the admin API, and sees only as much of a recipient as is needed to tell two apart.
	Support Role = "support"
	// Operator includes Support, reads recipients, content and the audit log, and may act on entries in doubt, dead
	// letters, redrives and providers.
	Operator Role = "operator"
	// Admin includes Operator, and may erase the personal data of a user.
	Admin Role = "admin"

	// anyRole is required by routes that are open to every caller.
	anyRole Role = ""
)

// holds reports whether a caller of this role may do what requires the role need.
func (r Role) holds(need Role) bool {
	switch need {
	case anyRole:
		return r == Producer || r.rank() > 0
	case Producer:
		return r == Producer
	default:
		return need.rank() > 0 && r.rank() >= need.rank()
	}
}

func (r Role) rank() int {
	switch r {
	case Support:
		return 1
	case Operator:
		return 2
	case Admin:
		return 3
	default:
		return 0
	}
}

// Caller is an API client. It may have several tokens, so that they can be rotated.
type Caller struct {
	Name        string
	Role        Role
	TokenHashes [][sha256.Size]byte // SHA-256 of each token
}

// requireRole admits callers that hold the role. A wrong token is refused before the body is read.
func (s *server) requireRole(need Role, handle func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, given := ingest.BearerToken(r.Header)
		if !given {
			s.writeError(w, r, errUnauthenticated)
			return
		}
		caller, known := s.callerOf(token)
		switch {
		case !known:
			s.refuseToken(w, r)
		case !caller.Role.holds(need):
			s.writeError(w, r, errForbidden)
		default:
			handle(w, r, caller)
		}
	}
}

// refuseToken answers a request with a wrong token. Requests with a right one are never counted or delayed: tokens
// are long and random, so the limit only bounds the noise of guessing, and locking an address out would let anybody
// behind a proxy block the callers behind the same one.
func (s *server) refuseToken(w http.ResponseWriter, r *http.Request) {
	if wait := s.countFailure(r, "callers"); wait > 0 {
		setRetryAfter(w.Header(), wait)
		s.writeError(w, r, errTooManyFailures)
		return
	}
	s.writeError(w, r, errUnauthenticated)
}

// countFailure counts one failed authentication. It logs it unless there were too many, and then returns how long
// the address has to wait.
func (s *server) countFailure(r *http.Request, at string) time.Duration {
	wait := s.failures.count(r.RemoteAddr, s.Now())
	if wait == 0 {
		s.log.WarnContext(r.Context(), "authentication failed", "at", at, "remote", r.RemoteAddr)
	}
	return wait
}

// callerOf finds the caller by comparing with every token, so that the time it takes reveals nothing about them.
func (s *server) callerOf(token string) (Caller, bool) {
	hash := sha256.Sum256([]byte(token))
	found := -1
	for i, caller := range s.Callers {
		for _, known := range caller.TokenHashes {
			if subtle.ConstantTimeCompare(hash[:], known[:]) == 1 {
				found = i
			}
		}
	}
	if found < 0 {
		return Caller{}, false
	}
	return s.Callers[found], true
}
