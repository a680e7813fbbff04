package api

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

var (
	errUnauthenticated  = errors.New("api: unauthenticated")
	errForbidden        = errors.New("api: forbidden")
	errTooManyFailures  = errors.New("api: too many failed authentications")
	errNoPath           = errors.New("api: no such path")
	errNoSource         = errors.New("api: no such source")
	errNoEvents         = errors.New("api: no provider with events has this name")
	errNoReminder       = errors.New("api: no such reminder")
	errNoEntry          = errors.New("api: no such entry")
	errNoDeadLetter     = errors.New("api: no such dead letter")
	errNoRedrive        = errors.New("api: no such redrive")
	errNoProvider       = errors.New("api: no such provider")
	errMethodNotAllowed = errors.New("api: method not allowed")
	errTimeout          = errors.New("api: timeout while reading the body")
	errUnreadable       = errors.New("api: incomplete body")
	errTooLarge         = errors.New("api: body too large")
	errEventTooLarge    = errors.New("api: event too large")
	errMediaType        = errors.New("api: unsupported media type")
	errCoded            = errors.New("api: unsupported content encoding")
	errMisdirected      = errors.New("api: misdirected")
	errConflict         = errors.New("api: conflict")
	errStale            = errors.New("api: stale")
	errUnrecorded       = errors.New("api: nothing recorded yet")
	errBusy             = errors.New("api: busy")
	errUnavailable      = errors.New("api: unavailable")
	errInternal         = errors.New("api: internal")
)

// ErrNotAuthentic means that a status event does not carry a valid signature of its provider.
var ErrNotAuthentic = errors.New("api: event without a valid signature")

// problems is the only table from errors to answers. The first row that matches is the answer; the last row is for
// every error that is not listed.
var problems = []struct {
	err    error
	status int
	code   wire.ProblemCode
	detail string
}{
	{errUnauthenticated, http.StatusUnauthorized, wire.ProblemCodeUnauthenticated, "A bearer token of a known caller is required."},
	{ErrNotAuthentic, http.StatusUnauthorized, wire.ProblemCodeUnauthenticated, "The event does not carry a valid signature of this provider."},
	{errForbidden, http.StatusForbidden, wire.ProblemCodeForbidden, "The caller's role does not allow this."},
	{errTooManyFailures, http.StatusTooManyRequests, wire.ProblemCodeTooManyFailures, "Too many wrong tokens were sent from this address."},
	{errNoPath, http.StatusNotFound, wire.ProblemCodeNotFound, "No route matches this path."},
	{errNoSource, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no push source with this name."},
	{errNoEvents, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no provider with this name that sends events."},
	{errNoReminder, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no entry with this reminder_id."},
	{errNoEntry, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no entry with this id."},
	{errNoDeadLetter, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no dead letter with this id."},
	{errNoRedrive, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no redrive with this id."},
	{errNoProvider, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no provider with this name."},
	{ledger.ErrNotFound, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no entry with this id."},
	{errMethodNotAllowed, http.StatusMethodNotAllowed, wire.ProblemCodeMethodNotAllowed, "The method is not allowed on this path: see Allow."},
	{errTimeout, http.StatusRequestTimeout, wire.ProblemCodeTimeout, "The body did not arrive in time."},
	{errUnreadable, http.StatusBadRequest, wire.ProblemCodeInvalid, "The body is incomplete."},
	{errTooLarge, http.StatusRequestEntityTooLarge, wire.ProblemCodeTooLarge, "The body is larger than 256 KiB."},
	{errEventTooLarge, http.StatusRequestEntityTooLarge, wire.ProblemCodeTooLarge, "The event is larger than 64 KiB."},
	{errCoded, http.StatusUnsupportedMediaType, wire.ProblemCodeUnsupportedMediaType, "Send the body without a Content-Encoding."},
	{errMediaType, http.StatusUnsupportedMediaType, wire.ProblemCodeUnsupportedMediaType, "Send Content-Type: application/json, without a Content-Encoding."},
	{errMisdirected, http.StatusMisdirectedRequest, wire.ProblemCodeMisdirected, "This server does not serve the host in the Host header."},
	{errConflict, http.StatusConflict, wire.ProblemCodeConflict, "This identity already exists with other content. The first content is kept, and this one was not sent."},
	{errStale, http.StatusConflict, wire.ProblemCodeStale, "The entry has changed since this version. Read it again before you decide."},
	{ledger.ErrNotInDoubt, http.StatusConflict, wire.ProblemCodeNotInDoubt, "The entry is not in doubt, so there is nothing to resolve."},
	{ledger.ErrSweepRunning, http.StatusConflict, wire.ProblemCodeRunning, "A run is already in progress on this replica: see last_run of the list."},
	{ledger.ErrNotDead, http.StatusConflict, wire.ProblemCodeNotDead, "The entry is not a dead letter."},
	{ledger.ErrKeyReused, http.StatusConflict, wire.ProblemCodeIdempotencyKeyReused, "This caller has already used the Idempotency-Key for another request."},
	{ledger.ErrNothingToRedrive, http.StatusConflict, wire.ProblemCodeNothingToRedrive, "No dead letter matches."},
	{ledger.ErrTooManyRedrives, http.StatusTooManyRequests, wire.ProblemCodeTooManyRedrives, "The maximum number of redrives is already running: wait for one to end, or cancel one."},
	{ledger.ErrRedriveEnded, http.StatusConflict, wire.ProblemCodeRedriveEnded, "The redrive has ended."},
	{errUnrecorded, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "Nothing is recorded yet. Repeat the same request."},
	{errBusy, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "Too many admin requests are in progress. Repeat the request later."},
	{errUnavailable, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "The ledger cannot be reached. Repeat the request later."},
	{errInternal, http.StatusInternalServerError, wire.ProblemCodeInternal, "An internal error occurred."},
}

// retryAfterDefault is the Retry-After where nothing better is known.
const retryAfterDefault = 5 * time.Second

// retryAfterRedrive is the Retry-After where a running redrive has to end first.
const retryAfterRedrive = 30 * time.Second

// unavailable marks the error of a service that a handler called. Those fail when the ledger cannot be reached, and
// then nothing was promised. Errors that the table lists earlier keep their own answer.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", errUnavailable, err)
}

// problemOf returns the problem document for an error, by the table.
func problemOf(err error) wire.Problem {
	var faults reminder.Faults
	if errors.As(err, &faults) {
		p := newProblem(http.StatusBadRequest, wire.ProblemCodeInvalid, "The request is not valid: see errors.")
		for _, fault := range faults {
			p.Errors = append(p.Errors, wire.Fault{Field: fault.Field, Problem: fault.Problem})
		}
		return p
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			return newProblem(known.status, known.code, known.detail)
		}
	}
	last := problems[len(problems)-1]
	return newProblem(last.status, last.code, last.detail)
}

// newProblem returns a problem of type about:blank, whose title is the phrase of the status (RFC 9457 section 4.2.1).
func newProblem(status int, code wire.ProblemCode, detail string) wire.Problem {
	return wire.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// errorWriter turns errors into answers, for the API and for [Operations].
type errorWriter struct{ log *slog.Logger }

func newErrorWriter(log *slog.Logger) errorWriter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return errorWriter{log}
}

// writeError answers with the problem document for an error. Server errors are logged under a correlation id, which is
// all that the answer reveals about them.
func (e errorWriter) writeError(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	header := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		setRetryAfter(header, retryAfterDefault)
	case http.StatusTooManyRequests:
		if p.Code == wire.ProblemCodeTooManyRedrives {
			setRetryAfter(header, retryAfterRedrive)
		}
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		header.Set("Connection", "close") // the rest of the body is not read
	}
	if p.Status >= http.StatusInternalServerError {
		p.CorrelationID = rand.Text()
		e.log.ErrorContext(r.Context(), "api: request failed", "correlation_id", p.CorrelationID, "error", err)
	}
	writeProblem(w, p)
}

func writeProblem(w http.ResponseWriter, p wire.Problem) {
	write(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, status, "application/json", body)
}

func write(w http.ResponseWriter, status int, mediaType string, body any) {
	document, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Errorf("api: encoding a response failed: %w", err)) // e.g. a year beyond 9999
	}
	document = append(document, '\n') // for users at a terminal
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(status)
	_, _ = w.Write(document) // an error means that the client is gone
}

func setRetryAfter(h http.Header, wait time.Duration) {
	seconds := int64(ledger.ClampRetryAfter(wait) / time.Second)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
}
