package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/internal/broker"
)

// Role is what a caller may do.
type Role string

const (
	// Producer asks for reminders and cancels them. It stands apart from the others.
	Producer Role = "producer"
	// Support reads, and sees no more of a recipient than it takes to tell two apart.
	Support Role = "support"
	// Operator holds what support holds, reads what was said to whom, and acts: on what is in doubt, on dead
	// letters, on providers.
	Operator Role = "operator"
	// Admin holds what an operator holds, and erases what is known of a person.
	Admin Role = "admin"

	// anyRole is what a route asks for that is open to every caller.
	anyRole Role = ""
)

// holds tells whether a caller of this role may do what needs the other.
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

// Caller is one who may call, by any of its tokens: several, so that they can be rotated.
type Caller struct {
	Name        string
	Role        Role
	TokenHashes [][sha256.Size]byte // SHA-256 of each token
}

// as lets those in who hold the role. A wrong token is answered before the body is read.
func (s *server) as(need Role, handle func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		token, given := broker.BearerToken(r.Header)
		if !given {
			s.fail(w, r, errUnauthenticated)
			return
		}
		caller, known := s.callerOf(token)
		switch {
		case !known:
			s.refuseToken(w, r)
		case !caller.Role.holds(need):
			s.fail(w, r, errForbidden)
		default:
			handle(w, r, caller)
		}
	}
}

// refuseToken answers for a wrong token. A right one is never counted nor held up: tokens are long and
// random, so the count only bounds the noise of guessing, and locking an address out would let anybody
// behind the same proxy silence the callers there.
func (s *server) refuseToken(w http.ResponseWriter, r *http.Request) {
	if wait := s.countFailure(r, "callers"); wait > 0 {
		setRetryAfter(w.Header(), wait)
		s.fail(w, r, errTooManyFailures)
		return
	}
	s.fail(w, r, errUnauthenticated)
}

// countFailure counts one failed authentication, logs it unless there are too many, and tells how long
// they should stay away then.
func (s *server) countFailure(r *http.Request, at string) time.Duration {
	wait := s.failures.count(r.RemoteAddr, s.Now())
	if wait == 0 {
		s.log.WarnContext(r.Context(), "authentication failed", "at", at, "remote", r.RemoteAddr)
	}
	return wait
}

// callerOf finds the caller by comparing with every token, in a time that does not tell which came near.
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
