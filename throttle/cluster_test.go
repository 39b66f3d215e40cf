package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestCluster: every call's keys live in one slot, those of its scope, whatever
// the keys of the limits look like.
func TestCluster(t *testing.T) {
	rdb := redistest.RunCluster(t).Client()
	defer rdb.Close()
	for i := range 4 {
		l := throttle.New(rdb, throttle.RedisOptions{Scope: fmt.Sprint("scope ", i)})
		define(t, l, append([]throttle.Limit{perMinute("wait", 1)}, threes...)...)
		var needs []throttle.Need
		for _, limit := range threes {
			needs = append(needs, throttle.Need{Limit: limit.Name, Key: "{" + limit.Name + "}"})
		}
		for _, want := range []throttle.Outcome{allowed, allowed, allowed, denied} {
			d, err := l.AllowAll(background, needs...)
			must(t, err)
			expect(t, "all kinds at once", d.Outcome, want)
		}
		slower := threes[0]
		slower.Rate = throttle.PerHour(1)
		must(t, l.Set(background, slower))
		ttl := rdb.PTTL(background, fmt.Sprintf("hg:{scope %d}:m:funnel:funnel|{funnel}", i)).Val()
		if ttl < 3*time.Hour {
			t.Errorf("3 permits at one an hour are forgotten in %s", ttl)
		}
		for id, want := range []throttle.Outcome{allowed, denied} {
			d, err := l.Acquire(background, throttle.Job{ID: fmt.Sprint(id)}, throttle.Need{Limit: "wait", Key: "{k}"})
			must(t, err)
			expect(t, "a job", d.Outcome, want)
		}
		_, _, active, err := l.Pump(background, "pump", time.Second, 0)
		must(t, err)
		expect(t, "pumps", active, true)
		limits, err := l.Limits(background)
		must(t, err)
		expect(t, "limits", len(limits), len(threes)+1)
		backlogs, err := l.Backlogs(background, "wait")
		must(t, err)
		expect(t, "backlogs", len(backlogs), 1)
		must(t, l.StopPump(background, "pump"))
	}
}
