package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
)

// TestRepairDemand: what is wanted is counted from the jobs that wait, and corrected unless it has
// changed since it was read. The dispatcher's pass does so; scheduler's TestLostKeys has it run
// each minute, in virtual time, and so on miniredis alone.
func TestRepairDemand(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("other", 1))
		db := s.lanes
		for i := range 4 {
			s.acquire(t, fmt.Sprint(i), one("other"))
		}
		_, err := db.BecomeLeader(t.Context(), "p", time.Hour, 0, "epoch")
		must(t, err)
		must(t, s.rdb.HSet(t.Context(), hg("demand"), "other|k", 1, "gone|k", 5, "busy|k", 2).Err())
		wanted := map[string]int64{}
		_, _, mended, err := db.RepairRecords(t.Context(), 0, 100, wanted)
		must(t, err)
		expect(t, "mended", mended, 0)
		expect(t, "wanted", wanted, map[string]int64{"other|k": 3})
		must(t, db.RepairDemand(t.Context(), "p", []waitdb.Correction{
			{Meter: "other|k", Read: "1", Wanted: 3}, {Meter: "gone|k", Read: "5"}, {Meter: "busy|k", Read: "1", Wanted: 7},
		}))
		must(t, db.RepairDemand(t.Context(), "another process", []waitdb.Correction{{Meter: "busy|k", Read: "2", Wanted: 7}}))
		demand, err := db.DemandByMeter(t.Context())
		must(t, err)
		expect(t, "demand", demand, map[string]string{"other|k": "3", "busy|k": "2"})
	})
}
