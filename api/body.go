package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"
)

// bodyLimit is how large the body of a caller may be, in bytes.
const bodyLimit = 256 << 10

// readBody reads at most limit bytes. The errors are errTooLarge, errTimeout and errUnreadable.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var beyond *http.MaxBytesError
	switch {
	case err == nil:
		return raw, nil
	case errors.As(err, &beyond):
		return nil, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errTimeout
	default:
		return nil, errUnreadable
	}
}

// readJSON reads a caller's body, which must say that it is JSON.
func readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || isCoded(r.Header) {
		return nil, errMediaType
	}
	return readBody(w, r, bodyLimit)
}

// isCoded tells whether a body is compressed. None is taken: a small one could grow without bounds.
func isCoded(h http.Header) bool {
	for _, coding := range h.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}

// pathParam is a parameter of the path, decoded once. chi routes by the raw path where there is one.
func pathParam(r *http.Request, name string) string {
	value := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return value
	}
	decoded, err := url.PathUnescape(value)
	if err != nil {
		return ""
	}
	return decoded
}
