package api

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestUsers_ErasedByAdminWithReason(t *testing.T) {
	var got []any
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{erase: func(_ context.Context, userID string, audit ledger.AuditEvent) (int, error) {
		got = []any{userID, audit}
		return 3, nil
	}}})
	for path, userID := range map[string]string{"u-77": "u-77", "u%2F%20~": "u/ ~", strings.Repeat("u", 255): strings.Repeat("u", 255)} {
		w := h.expect(request("DELETE", "/v1/admin/users/"+path+"/data", "admin", `{"reason": "they asked"}`), 200, "")
		if strings.TrimSpace(w.Body.String()) != `{"erased":3}` {
			t.Errorf("answered with %s", w.Body)
		}
		if diff := cmp.Diff([]any{userID, ledger.AuditEvent{Actor: "root", Role: "admin", Reason: "they asked"}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	got = nil
	for _, path := range []string{strings.Repeat("u", 256), "%C3%A4", "u%00", "u%0A"} {
		w := h.expect(request("DELETE", "/v1/admin/users/"+path+"/data", "admin", `{"reason": "they asked"}`), 400, wire.ProblemCodeInvalid)
		if faults := decoded[wire.Problem](t, w).Errors; len(faults) != 1 || faults[0].Field != "user_id" || got != nil {
			t.Errorf("%s: %s, %v", path, w.Body, got)
		}
	}
}
