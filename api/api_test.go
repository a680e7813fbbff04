package api

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
)

func TestNew_AdminAPICanHaveItsOwnListener(t *testing.T) {
	const push, entries = "POST /v1/push/{source}", "GET /v1/admin/entries"
	handlers := map[string]struct {
		handler http.Handler
		want    map[string]bool
	}{
		"whole":  {New(Options{}), map[string]bool{push: true, entries: true}},
		"public": {NewPublic(Options{}), map[string]bool{push: true}},
		"admin":  {NewAdmin(Options{}), map[string]bool{entries: true}},
	}
	for name, c := range handlers {
		routed := map[string]bool{}
		err := chi.Walk(c.handler.(chi.Router), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			routed[method+" "+route] = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range []string{push, entries} {
			if routed[route] != c.want[route] {
				t.Errorf("%s serves %s: %v", name, route, routed[route])
			}
		}
	}
}
