package waitdb_test

import (
	"fmt"
	"testing"
)

// TestRepairDemand: the demand is counted from the waiting jobs, and corrected. Scheduler's
// TestLostKeys lets the dispatcher do so, but on miniredis alone.
func TestRepairDemand(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("other", 1))
		db := s.lanes
		for i := range 4 {
			s.acquire(t, fmt.Sprint(i), one("other"))
		}
		must(t, s.rdb.HSet(t.Context(), hg("demand"), "other|k", 1, "gone|k", 5).Err())
		wanted := map[string]int64{}
		_, _, repaired, err := db.RepairRecords(t.Context(), 0, 100, wanted)
		must(t, err)
		expect(t, "repaired", repaired, 0)
		expect(t, "wanted", wanted, map[string]int64{"other|k": 3})
		must(t, db.SetDemand(t.Context(), map[string]int64{"other|k": 3, "gone|k": 0}))
		demand, err := db.DemandByMeter(t.Context())
		must(t, err)
		expect(t, "demand", demand, map[string]int64{"other|k": 3})
	})
}
