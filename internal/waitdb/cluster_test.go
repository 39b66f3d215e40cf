package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestCluster: every call's keys live in one slot, those of its scope, whatever
// the keys of the limits look like.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	rdb := redistest.RunCluster(t).Client()
	defer rdb.Close()
	for i := range 4 {
		l := throttle.New(rdb, throttle.Options{Scope: fmt.Sprint("scope ", i)})
		define(t, l, append([]throttle.Limit{perMinute("wait", 1)}, limittest.Threes...)...)
		var needs []throttle.Need
		for _, limit := range limittest.Threes {
			needs = append(needs, throttle.Need{Limit: limit.Name, Key: "{" + limit.Name + "}"})
		}
		for _, want := range []throttle.Outcome{allowed, allowed, allowed, denied} {
			d, err := l.AllowAll(background, needs...)
			must(t, err)
			expect(t, "all kinds at once", d.Outcome, want)
		}
		line := waitdb.New(l)
		for id, want := range []throttle.Outcome{allowed, denied} {
			d, err := line.Acquire(background, job(fmt.Sprint(id)), throttle.Need{Limit: "wait", Key: "{k}"})
			must(t, err)
			expect(t, "a job", d.Outcome, want)
		}
		giveTurns(t, line)
		limits, err := l.Limits(background)
		must(t, err)
		expect(t, "limits", len(limits), len(limittest.Threes)+1)
		forecast, err := forecast.Make(background, line, forecast.Options{})
		must(t, err)
		expect(t, "who waits", forecast.Jobs, 1)
		place, waits, err := line.Position(background, job("1").JobID)
		must(t, err)
		expect(t, "waits", [2]any{waits, place.Rank}, [2]any{true, 1})
		must(t, second(line.Forget(background, job("1").JobID)))
	}
}

// giveTurns makes each call that a dispatcher makes.
func giveTurns(t *testing.T, limiter *waitdb.DB) {
	t.Helper()
	store := limiter
	lead, err := store.BecomeLeader(background, "me", time.Second, 0, "epoch")
	must(t, err)
	expect(t, "lanes", len(lead.NewLanes), 1)
	_, results, held, err := store.Grant(background, "me", []fairqueue.Turn{{Lane: lead.NewLanes[0].Lane, Held: []int64{0}}})
	must(t, err)
	expect(t, "held", held, true)
	expect(t, "turn", results[0].Outcome, fairqueue.Refused)
	expired, err := store.ExpireGrants(background, []string{lead.NewLanes[0].Lane})
	must(t, err)
	expect(t, "waiting", expired[0].Waiting, 1)
	_, err = store.PublishShares(background, "me", lead.NewLanes[0].Number, map[string]int{"wait|{k}": 2})
	must(t, err)
	must(t, store.StepDown(background, "me", ""))
}
