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
	errTooManyFailures  = errors.New("api: too many failures")
	errNoPath           = errors.New("api: no such path")
	errNoSource         = errors.New("api: no such source")
	errNoEvents         = errors.New("api: no such provider with events")
	errNoReminder       = errors.New("api: no such reminder")
	errNoEntry          = errors.New("api: no such entry")
	errNoLetter         = errors.New("api: no such dead letter")
	errNoRedrive        = errors.New("api: no such redrive")
	errNoProvider       = errors.New("api: no such provider")
	errMethodNotAllowed = errors.New("api: method not allowed")
	errTimeout          = errors.New("api: the body did not arrive in time")
	errUnreadable       = errors.New("api: the body did not arrive whole")
	errTooLarge         = errors.New("api: body too large")
	errEventTooLarge    = errors.New("api: event too large")
	errMediaType        = errors.New("api: media type")
	errCoded            = errors.New("api: content encoding")
	errMisdirected      = errors.New("api: misdirected")
	errConflict         = errors.New("api: conflict")
	errStale            = errors.New("api: stale")
	errUnrecorded       = errors.New("api: nothing is recorded yet")
	errBusy             = errors.New("api: busy")
	errUnavailable      = errors.New("api: unavailable")
	errInternal         = errors.New("api: internal")
)

// ErrForged : an event is not signed as its provider signs.
var ErrForged = errors.New("api: forged event")

// problems is the one table from errors to answers. The first line that fits is the answer, the last one is
// for all that it does not list.
var problems = []struct {
	err    error
	status int
	code   wire.ProblemCode
	detail string
}{
	{errUnauthenticated, http.StatusUnauthorized, wire.ProblemCodeUnauthenticated, "A bearer token of a known caller is required."},
	{ErrForged, http.StatusUnauthorized, wire.ProblemCodeUnauthenticated, "The event is not signed as this provider signs."},
	{errForbidden, http.StatusForbidden, wire.ProblemCodeForbidden, "The caller's role does not allow this."},
	{errTooManyFailures, http.StatusTooManyRequests, wire.ProblemCodeTooManyFailures, "Too many wrong tokens came from this address."},
	{errNoPath, http.StatusNotFound, wire.ProblemCodeNotFound, "Nothing is served under this path."},
	{errNoSource, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no push source of this name."},
	{errNoEvents, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no provider of this name that sends events."},
	{errNoReminder, http.StatusNotFound, wire.ProblemCodeNotFound, "No entry is known under this reminder_id."},
	{errNoEntry, http.StatusNotFound, wire.ProblemCodeNotFound, "No entry is known under this id."},
	{errNoLetter, http.StatusNotFound, wire.ProblemCodeNotFound, "No dead letter is known under this id."},
	{errNoRedrive, http.StatusNotFound, wire.ProblemCodeNotFound, "No redrive is known under this id."},
	{errNoProvider, http.StatusNotFound, wire.ProblemCodeNotFound, "There is no provider of this name."},
	{ledger.ErrNotFound, http.StatusNotFound, wire.ProblemCodeNotFound, "No entry is known under this id."},
	{errMethodNotAllowed, http.StatusMethodNotAllowed, wire.ProblemCodeMethodNotAllowed, "The method is not allowed here: see Allow."},
	{errTimeout, http.StatusRequestTimeout, wire.ProblemCodeTimeout, "The body did not arrive in time."},
	{errUnreadable, http.StatusBadRequest, wire.ProblemCodeInvalid, "The body did not arrive whole."},
	{errTooLarge, http.StatusRequestEntityTooLarge, wire.ProblemCodeTooLarge, "The body is larger than 256 KiB."},
	{errEventTooLarge, http.StatusRequestEntityTooLarge, wire.ProblemCodeTooLarge, "The event is larger than 64 KiB."},
	{errCoded, http.StatusUnsupportedMediaType, wire.ProblemCodeUnsupportedMediaType, "Send the body without a Content-Encoding."},
	{errMediaType, http.StatusUnsupportedMediaType, wire.ProblemCodeUnsupportedMediaType, "Send Content-Type: application/json, without a Content-Encoding."},
	{errMisdirected, http.StatusMisdirectedRequest, wire.ProblemCodeMisdirected, "The host in the Host header is not served here."},
	{errConflict, http.StatusConflict, wire.ProblemCodeConflict, "This identity stands with other content. The first content stands, and this one was not sent."},
	{errStale, http.StatusConflict, wire.ProblemCodeStale, "The entry has moved on since it was seen: decide again on what stands."},
	{ledger.ErrNotInDoubt, http.StatusConflict, wire.ProblemCodeNotInDoubt, "Nothing about this entry waits for a decision."},
	{ledger.ErrRunning, http.StatusConflict, wire.ProblemCodeRunning, "A run is under way here: see last_run of the list."},
	{ledger.ErrNotDead, http.StatusConflict, wire.ProblemCodeNotDead, "The entry is no dead letter."},
	{ledger.ErrOtherRequest, http.StatusConflict, wire.ProblemCodeOtherRequest, "The Idempotency-Key stands for another request of this caller."},
	{ledger.ErrNothingToRedrive, http.StatusConflict, wire.ProblemCodeNothingToRedrive, "No dead letter fits."},
	{ledger.ErrTooManyRedrives, http.StatusTooManyRequests, wire.ProblemCodeTooManyRedrives, "As many redrives as may be are under way: wait for one to end, or cancel one."},
	{ledger.ErrRedriveEnded, http.StatusConflict, wire.ProblemCodeRedriveEnded, "The redrive has ended."},
	{errUnrecorded, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "Nothing is recorded yet. Repeat the same request."},
	{errBusy, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "Too many others ask at the moment. Repeat the request later."},
	{errUnavailable, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable, "The ledger cannot be reached. Repeat the request later."},
	{errInternal, http.StatusInternalServerError, wire.ProblemCodeInternal, "Something went wrong here."},
}

// comeBack is when it is worth trying again where nothing better is known.
const comeBack = 5 * time.Second

// redriveBack is when it is worth looking whether one of the redrives under way has ended.
const redriveBack = 30 * time.Second

// unavailable marks what a collaborator failed with: they fail when the ledger cannot be reached, and then
// nothing was promised. What the table lists before it keeps its own answer.
func unavailable(err error) error {
	return fmt.Errorf("%w: %w", errUnavailable, err)
}

// problemOf is the document for an error, by the table.
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

// newProblem has the type about:blank, whose title is the status's own phrase (RFC 9457 section 4.2.1).
func newProblem(status int, code wire.ProblemCode, detail string) wire.Problem {
	return wire.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// edge is where errors become answers, on both surfaces.
type edge struct{ log *slog.Logger }

func newEdge(log *slog.Logger) edge {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return edge{log}
}

// fail answers with the problem document for an error. What is our fault is logged under a correlation
// id, which is all that the answer tells of it.
func (e edge) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	header := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		setRetryAfter(header, comeBack)
	case http.StatusTooManyRequests:
		if p.Code == wire.ProblemCodeTooManyRedrives {
			setRetryAfter(header, redriveBack)
		}
	case http.StatusRequestEntityTooLarge, http.StatusRequestTimeout:
		header.Set("Connection", "close") // what is left of the body is not worth reading
	}
	if p.Status >= http.StatusInternalServerError {
		p.CorrelationID = rand.Text()
		e.log.ErrorContext(r.Context(), "a request failed", "correlation_id", p.CorrelationID, "error", err)
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
		panic(fmt.Errorf("api: a document of ours cannot be written: %w", err)) // e.g. a year beyond 9999
	}
	document = append(document, '\n') // for people at a terminal
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(document)))
	w.WriteHeader(status)
	_, _ = w.Write(document) // the peer is gone, or has it
}

func setRetryAfter(h http.Header, wait time.Duration) {
	seconds := int64(ledger.ClampRetryAfter(wait) / time.Second)
	h.Set("Retry-After", strconv.FormatInt(seconds, 10))
}
