package waitdb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// fairJob is a job of a tenant.
func fairJob(id, tenant string, weight int) waitdb.Job {
	return waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, Fair: tenant, Weight: weight, MaxAdvance: time.Second}
}

// TestFairness: tenants take turns by their weights, however many jobs each has, and whoever
// has none waits in the lane of those that have none.
func TestFairness(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, funnel("api", throttle.PerSecond(10)))
		for i := range 300 {
			for tenant, weight := range map[string]int{"many": 1, "paid": 3, "": 0} {
				if i < 150 || tenant == "many" {
					_, err := s.lanes.Acquire(background, fairJob(tenant+strings.Repeat("i", i), tenant, weight), one("api"))
					must(t, err)
				}
			}
		}
		ran := map[string]int{}
		for n := 0; n < 100; {
			ids, next := s.pump(t)
			for _, id := range ids {
				tenant := strings.TrimRight(id, "i")
				d, err := s.lanes.Acquire(background, fairJob(id, tenant, map[string]int{"many": 1, "paid": 3}[tenant]), one("api"))
				must(t, err)
				if d.OK() {
					ran[tenant]++
					n++
				}
			}
			if len(ids) == 0 {
				s.wait(next)
			}
		}
		for tenant, want := range map[string]int{"many": 20, "paid": 60, "": 20} {
			if ran[tenant] < want-2 || ran[tenant] > want+2 {
				t.Errorf("of 100 turns tenant %q had %d, want %d", tenant, ran[tenant], want)
			}
		}
		lanes, _, err := s.lanes.LanesFrom(background, 0, 10)
		must(t, err)
		for _, l := range lanes {
			expect(t, "meters", strings.Join(l.Meters, " "), "api|k")
			expect(t, "weight of "+l.Fair, l.Weight, map[string]int{"many": 1, "paid": 3, "": 1}[l.Fair])
		}
		last := throttle.JobID{Queue: "default", ID: "paid" + strings.Repeat("i", 149)}
		place, _, err := s.lanes.Position(background, last)
		must(t, err)
		expect(t, "lane of one that waits", []any{strings.Join(place.Lane.Meters, " "), place.Lane.Fair, place.Lane.Weight}, []any{"api|k", "paid", 3})
		waiting, err := s.lanes.CountWaiting(background, "api", 1)
		must(t, err)
		if waiting < 480 {
			t.Errorf("%d jobs wait for the limit, want about 500", waiting)
		}
	})
}

// TestFairness_BadInput: a key or a weight out of bounds is one error, and nothing waits.
func TestFairness_BadInput(t *testing.T) {
	s := miniFixture(t)
	define(t, s, funnel("api", throttle.PerSecond(10)))
	for want, job := range map[string]waitdb.Job{
		"want at most 200 bytes and no control characters": fairJob("long", strings.Repeat("k", 10_000), 1),
		"fair \"a\\nb\": want at most":                     fairJob("lines", "a\nb", 1),
		"weight 1000000000: want 1 to 1000":                fairJob("heavy", "a", 1_000_000_000),
		"weight -1: want 1 to 1000":                        fairJob("light", "a", -1),
	} {
		_, err := s.lanes.Acquire(background, job, one("api"))
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 200 {
			t.Errorf("%.80v: want an error with %q", err, want)
		}
	}
	if jobs, _, _, _ := s.lanes.BacklogStats(background); jobs != 0 {
		t.Errorf("%d jobs wait", jobs)
	}
}
