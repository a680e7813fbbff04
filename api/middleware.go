package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// guard adds the middleware of every route, serves HEAD as GET (net/http leaves out the body), and adds the answers for requests that match none.
func (e errorWriter) guard(r chi.Router, hosts []string) {
	r.Use(withHeaders, e.withRecovery, middleware.GetHead)
	if len(hosts) > 0 {
		r.Use(e.withHosts(hosts))
	}
	r.NotFound(func(w http.ResponseWriter, req *http.Request) { e.writeError(w, req, errNoPath) })
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) { e.wrongMethod(w, req, r) })
}

// withHeaders forbids caching and content sniffing of all answers.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// withRecovery answers for a handler that panicked, and aborts the connection where it had begun to answer.
func (e errorWriter) withRecovery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			err := fmt.Errorf("%w: %s\n%s", errInternal, panicText(cause), debug.Stack())
			if answer.Status() != 0 {
				e.log.ErrorContext(r.Context(), "api: response aborted after a panic", "error", err)
				panic(http.ErrAbortHandler)
			}
			e.writeError(answer, r, err)
		}()
		next.ServeHTTP(answer, r)
	})
}

// panicText describes a panic without its value, which may contain personal data; a runtime error contains none.
func panicText(cause any) string {
	if err, ok := cause.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("panic of type %T", cause)
}

// withHosts refuses requests for other hosts (RFC 9110 section 15.5.20).
func (e errorWriter) withHosts(hosts []string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requested := hostOf(r.Host)
			if !slices.ContainsFunc(hosts, func(host string) bool { return strings.EqualFold(host, requested) }) {
				e.writeError(w, r, errMisdirected)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hostOf returns the host of a Host header, without port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
}

// wrongMethod answers 405 with the methods that the path has in Allow (RFC 9110 section 15.5.6). A path that has none
// is a 404, even for a method that the router does not know.
func (e errorWriter) wrongMethod(w http.ResponseWriter, r *http.Request, routes chi.Routes) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
			if method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if len(allowed) == 0 {
		e.writeError(w, r, errNoPath)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	e.writeError(w, r, errMethodNotAllowed)
}
