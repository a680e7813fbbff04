package api

import (
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/reminder"
)

// erase erases the personal data of a user.
func (s *server) erase(w http.ResponseWriter, r *http.Request, caller Caller) {
	userID := pathParam(r, "user_id")
	if !isWord(userID) {
		s.writeError(w, r, reminder.Faults{{Field: "user_id", Problem: "must be " + wordProblem}})
		return
	}
	audit, err := readReason(w, r, caller)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	erased, err := s.Erase.Erase(r.Context(), userID, audit)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusOK, wire.Erased{Erased: erased})
}
