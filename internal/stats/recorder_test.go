package stats

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

func allowed(limit string, n int) (needs []throttle.Need, d waitdb.Decision) {
	return []throttle.Need{{Limit: limit, Cost: n}}, waitdb.Decision{Decision: throttle.Decision{Outcome: throttle.Allowed, Limit: limit}}
}

func denied(limit, key string, after time.Duration) (needs []throttle.Need, d waitdb.Decision) {
	return []throttle.Need{{Limit: limit, Key: key}}, waitdb.Decision{Decision: throttle.Decision{Outcome: throttle.Denied, Limit: limit, Key: key, RetryAfter: after}}
}

func run(r *Recorder, t Task, end AttemptEnd) {
	r.CountStart(t)
	r.CountEnd(t, end, 0)
}

func TestSummaries(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		r := New(rdb, script.Prefix("s"))
		needs, d := allowed("api", 9)
		r.CountDecision(needs, d)
		r.CountReturned(throttle.Need{Limit: "api", Key: "k", Cost: 9}, 8)
		r.CountReturned(throttle.Need{Limit: "api", Key: "k", Cost: 1}, -2) // the call cost more than was settled
		needs, d = denied("api", "k", time.Minute)
		r.CountDecision(needs, d)
		run(r, Task{"default", "mail"}, Done)
		run(r, Task{"default", "mail"}, Failed)
		r.writeSummary()
		r.writeSummary() // nothing is new
		run(r, Task{"low", "mail"}, Archived)
		r.writeSummary()

		all, err := ReadSummaries(ctx, rdb, "s", "")
		if err != nil || len(all) != 2 || len(all[0].Queues) != 1 {
			t.Fatalf("read %v, %v; want 2 summaries", all, err)
		}
		want := Summary{
			ID: all[0].ID, At: all[0].At,
			Limits: map[string]LimitSummary{"api": {Allowed: 1, Denied: 1, Permits: 3, Settled: 6}},
			Queues: map[string]QueueSummary{"default": {Done: 1, Ended: 2, Ran: all[0].Queues["default"].Ran}},
		}
		if diff := cmp.Diff(want, all[0]); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		if later, err := ReadSummaries(ctx, rdb, "s", all[0].ID); err != nil || len(later) != 1 || later[0].ID != all[1].ID {
			t.Errorf("after the first: %v, %v; want the second", later, err)
		}
	})
}

func TestNames_Bounded(t *testing.T) {
	r := New(nil, script.Prefix("s"))
	for i := range 1000 {
		run(r, Task{"default", fmt.Sprint("type-", i)}, Done)
		needs, d := allowed(fmt.Sprint("limit-", i), 1)
		r.CountDecision(needs, d)
	}
	for _, name := range []string{"a\nb", "a\xff", strings.Repeat("x", 101), "\x7f"} {
		run(r, Task{"default", name}, Done)
		run(r, Task{name, "mail"}, Done)
	}
	tasks, done := 0, int64(0)
	for _, c := range r.Tasks() {
		tasks++
		done += c.Ends[Done]
	}
	limits := len(r.Limits())
	if tasks != maxNames+1 || limits != maxNames+1 || done != 1008 {
		t.Errorf("%d tasks, %d limits, %d jobs; want %d, %[4]d, 1008", tasks, limits, done, maxNames+1)
	}
	r = New(nil, script.Prefix("s")) // a queue or a type may have the name of the rest
	for _, task := range []Task{{Other, "mail"}, {"mail", Other}, {"mail", "control\n"}} {
		run(r, task, Done)
	}
	if n := len(r.Tasks()); n != 3 {
		t.Errorf("%d tasks, want 3", n)
	}
}

// TestStream_Bounded: summaries are kept for 16 minutes by Redis's clock.
func TestStream_Bounded(t *testing.T) {
	m, rdb := redistest.Mini(t)
	r := New(rdb, script.Prefix("s"))
	began := time.Now().Add(-24 * time.Hour) // the process's clock does not matter
	for minute := range 40 {
		m.SetTime(began.Add(time.Duration(minute) * time.Minute))
		run(r, Task{"default", "mail"}, Done)
		r.writeSummary()
	}
	all, err := ReadSummaries(t.Context(), rdb, "s", "")
	if err != nil || len(all) != 17 {
		t.Errorf("%d summaries, %v; want those of 16 minutes and now", len(all), err)
	}
}

func TestRead_SkipsInvalidEntries(t *testing.T) {
	_, rdb := redistest.Mini(t)
	ctx := t.Context()
	rdb.XAdd(ctx, &redis.XAddArgs{Stream: script.Prefix("s") + "stats", Values: []any{"s", "{"}})
	rdb.XAdd(ctx, &redis.XAddArgs{Stream: script.Prefix("s") + "stats", Values: []any{"other", "{}"}})
	if all, err := ReadSummaries(ctx, rdb, "s", ""); len(all) > 0 || err != nil {
		t.Errorf("read %v, %v; want nothing", all, err)
	}
}

func TestReadMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		r := New(rdb, script.Prefix("s"))
		for _, took := range []time.Duration{6 * time.Second, 8 * time.Second} {
			r.CountStart(Task{"default", "mail"})
			r.CountEnd(Task{"default", "mail"}, Done, took)
			r.writeSummary()
		}
		want := map[string]time.Duration{"default": 7 * time.Second}
		for _, l := range []string{"tokens", "untouched"} {
			needs, d := allowed(l, 4000)
			r.CountDecision(needs, d)
			r.CountDecision(needs, d)
		}
		r.CountReturned(throttle.Need{Limit: "tokens", Cost: 4000}, 4000) // no call was made
		r.CountReturned(throttle.Need{Limit: "tokens", Cost: 4000}, 3000)
		r.writeSummary()
		m, err := ReadMeans(t.Context(), rdb, "s")
		if shares := map[string]float64{"tokens": 0.25}; err != nil || !maps.Equal(m.Durations, want) || !maps.Equal(m.CostShares, shares) {
			t.Errorf("%v, %v; want %v and %v", m, err, want, shares)
		}
	})
}

func TestHistogram(t *testing.T) {
	h := newHistogram([]float64{1, 2, 4})
	for _, v := range []float64{0, 1, 1.5, 2, 3, 100} {
		h.observe(v)
	}
	count, sum, buckets := h.Snapshot()
	if want := map[float64]uint64{1: 2, 2: 4, 4: 5}; count != 6 || sum != 107.5 || !maps.Equal(buckets, want) {
		t.Errorf("count %d, sum %v, buckets %v; want 6, 107.5 and %v", count, sum, buckets, want)
	}
}

// TestProcesses: a process is listed while it is alive, for an hour after it was lost, and not
// after it stopped.
func TestProcesses(t *testing.T) {
	m, rdb := redistest.Mini(t)
	began := time.Now()
	m.SetTime(began)
	stops, dies := New(rdb, script.Prefix("s")), New(rdb, script.Prefix("s"))
	stops.SetConfig("headgate.yaml 12345678")
	stops.Concurrency = 7
	stops.CountStart(Task{"default", "mail"})
	stops.reportAlive()
	dies.reportAlive()
	processes := func(after time.Duration) map[string]Process {
		t.Helper()
		m.SetTime(began.Add(after))
		all, err := ReadProcesses(t.Context(), rdb, "s")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Process{}
		for _, p := range all {
			found[p.ID] = p
		}
		return found
	}
	p := processes(0)[stops.processID]
	if p.Host == "" || p.PID == 0 || p.Version == "" || p.Config != "headgate.yaml 12345678" || p.Running != 1 || p.Concurrency != 7 || p.Lost || p.LastSeen.Sub(began).Abs() > time.Second {
		t.Errorf("%+v; want all fields", p)
	}
	if all := processes(lostAfter + time.Second); len(all) != 2 || !all[dies.processID].Lost {
		t.Errorf("%+v; want both, lost", all)
	}
	stops.reportAlive()
	if all := processes(lostAfter + time.Second); all[stops.processID].Lost || !all[dies.processID].Lost {
		t.Errorf("%+v; want one lost", all)
	}
	stops.writeProcess("")
	if all := processes(lostAfter + time.Second); len(all) != 1 || !all[dies.processID].Lost {
		t.Errorf("%+v; want the lost one", all)
	}
	m.SetTime(began.Add(lostRetention + time.Minute))
	stops.reportAlive()
	if all := processes(lostRetention + time.Minute); len(all) != 1 || all[stops.processID].Lost {
		t.Errorf("%+v; want the one that is alive", all)
	}
}
