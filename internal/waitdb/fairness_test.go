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
