package app

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// logLowWater logs where the configuration reaches further back than the ledger does, since entries were deleted under a
// shorter memory. Reminders with a date are refused then. A source without publish times has no date to refuse by.
func (g *gateway) logLowWater(ctx context.Context) {
	snapshot, err := g.store.Load(ctx, ledger.Identity{}) // read with an entry that does not exist
	if err != nil {
		return // each delivery will report it
	}
	forgotten := func(span time.Duration) bool { return snapshot.LowWater.After(snapshot.Now.Add(-span)) }
	if forgotten(g.cfg.Memory) {
		g.log.Warn("memory reaches further back than the ledger, which has deleted entries: what was published until then and has no entry is refused",
			"low_water", snapshot.LowWater, "memory", g.cfg.Memory.String())
	}
	for _, name := range names(g.cfg.Sources) {
		if span := g.cfg.Sources[name].MaxAge; forgotten(span) {
			g.log.Warn("a source without publish times may repeat messages whose entries are deleted; without a created_at they are sent again",
				"source", name, "low_water", snapshot.LowWater, "max_age", span.String())
		}
	}
}
