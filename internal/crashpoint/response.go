//go:build unix

package crashpoint

import (
	"net/http"
	"strconv"
)

// Answers passes the points of the responses to POST requests.
func (p *Points) Answers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		rw := &responseWriter{ResponseWriter: w, points: p}
		next.ServeHTTP(rw, r)
		rw.begin()
		if p.armed(Answered) {
			_ = http.NewResponseController(w).Flush()
			p.Pass(Answered)
		}
	})
}

// responseWriter delays the headers until the first write of the body, so that it can set Content-Length: then a flush
// sends the whole response.
type responseWriter struct {
	http.ResponseWriter
	points *Points
	status int
	began  bool
}

// Unwrap is used by http.ResponseController.
func (rw *responseWriter) Unwrap() http.ResponseWriter { return rw.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (rw *responseWriter) WriteHeader(status int) { rw.status = status }

// Write implements http.ResponseWriter. The product writes each response body with one Write.
func (rw *responseWriter) Write(body []byte) (int, error) {
	if !rw.began {
		rw.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	rw.begin()
	if !rw.points.armed(HalfAnswered) {
		return rw.ResponseWriter.Write(body)
	}
	half, err := rw.ResponseWriter.Write(body[:len(body)/2])
	if err != nil {
		return half, err
	}
	_ = http.NewResponseController(rw.ResponseWriter).Flush()
	rw.points.Pass(HalfAnswered)
	n, err := rw.ResponseWriter.Write(body[half:])
	return half + n, err
}

func (rw *responseWriter) begin() {
	if rw.began {
		return
	}
	rw.began = true
	rw.points.Pass(Settled)
	if rw.status != 0 {
		rw.ResponseWriter.WriteHeader(rw.status)
	}
}
