//go:build unix

package crashpoint

import (
	"net/http"
	"strconv"
)

// Answers passes the points of the answers to what is posted.
func (p *Points) Answers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		a := &answer{ResponseWriter: w, points: p}
		next.ServeHTTP(a, r)
		a.begin()
		if p.armed(Answered) {
			_ = http.NewResponseController(w).Flush()
			p.Pass(Answered)
		}
	})
}

// answer holds its head back until the first byte of its body, so that it can say how long that is: then
// what has been flushed is the whole of it.
type answer struct {
	http.ResponseWriter
	points *Points
	status int
	began  bool
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter. The product's answers are each one Write.
func (a *answer) Write(body []byte) (int, error) {
	if !a.began {
		a.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	a.begin()
	if !a.points.armed(HalfAnswered) {
		return a.ResponseWriter.Write(body)
	}
	half, err := a.ResponseWriter.Write(body[:len(body)/2])
	if err != nil {
		return half, err
	}
	_ = http.NewResponseController(a.ResponseWriter).Flush()
	a.points.Pass(HalfAnswered)
	n, err := a.ResponseWriter.Write(body[half:])
	return half + n, err
}

func (a *answer) begin() {
	if a.began {
		return
	}
	a.began = true
	a.points.Pass(Settled)
	if a.status != 0 {
		a.ResponseWriter.WriteHeader(a.status)
	}
}
