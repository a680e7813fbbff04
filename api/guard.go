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

// guard puts what every route needs around a router, and what requests get that meet no route.
func (e edge) guard(r chi.Router, hosts []string) {
	r.Use(withHeaders, e.withRecovery)
	if len(hosts) > 0 {
		r.Use(e.withHosts(hosts))
	}
	r.NotFound(func(w http.ResponseWriter, req *http.Request) { e.fail(w, req, errNoPath) })
	r.MethodNotAllowed(func(w http.ResponseWriter, req *http.Request) { e.wrongMethod(w, req, r) })
}

// withHeaders keeps answers out of caches and away from guesses about their type.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// withRecovery answers for a handler that panicked, and cuts the connection where it had begun to answer.
func (e edge) withRecovery(next http.Handler) http.Handler {
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
			err := fmt.Errorf("%w: %s\n%s", errInternal, panicked(cause), debug.Stack())
			if answer.Status() != 0 {
				e.log.ErrorContext(r.Context(), "an answer was cut off", "error", err)
				panic(http.ErrAbortHandler)
			}
			e.fail(answer, r, err)
		}()
		next.ServeHTTP(answer, r)
	})
}

// panicked tells what a panic was without its value, which may hold content; a runtime error holds none.
func panicked(cause any) string {
	if err, ok := cause.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("panic of type %T", cause)
}

// withHosts refuses what was meant for another host (RFC 9110 section 15.5.20).
func (e edge) withHosts(hosts []string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			named := hostOf(r.Host)
			if !slices.ContainsFunc(hosts, func(host string) bool { return strings.EqualFold(host, named) }) {
				e.fail(w, r, errMisdirected)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// hostOf is a Host header's host, without port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(header, "["), "]")
}

// wrongMethod names the methods that the path has, as RFC 9110 section 15.5.6 asks; for a path that has
// none it is a 404, also where the router does not know the method.
func (e edge) wrongMethod(w http.ResponseWriter, r *http.Request, routes chi.Routes) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		e.fail(w, r, errNoPath)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	e.fail(w, r, errMethodNotAllowed)
}
