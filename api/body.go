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

// bodyLimit is the largest body of a caller's request, in bytes.
const bodyLimit = 256 << 10

// readBody reads at most limit bytes. The errors are errTooLarge, errTimeout and errUnreadable.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, errTooLarge
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return raw, nil
	case errors.As(err, &tooLarge):
		return nil, errTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errTimeout
	default:
		return nil, errUnreadable
	}
}

// readJSON reads a caller's body, whose Content-Type must be JSON.
func readJSON(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" || isCoded(r.Header) {
		return nil, errMediaType
	}
	return readBody(w, r, bodyLimit)
}

// isCoded reports whether a body has a content encoding. Those are refused: a small compressed body could expand
// without bounds.
func isCoded(h http.Header) bool {
	for _, coding := range h.Values("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return true
		}
	}
	return false
}

// pathParam returns a path parameter, decoded once. chi routes by the raw path where there is one.
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
