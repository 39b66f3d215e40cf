package stats

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

func allowed(limit string, n int) (needs []throttle.Need, d throttle.Decision) {
	return []throttle.Need{{Limit: limit, Cost: n}}, throttle.Decision{Outcome: throttle.Allowed, Limit: limit}
}

func denied(limit, key string, after time.Duration) (needs []throttle.Need, d throttle.Decision) {
	return []throttle.Need{{Limit: limit, Key: key}}, throttle.Decision{Outcome: throttle.Denied, Limit: limit, Key: key, RetryAfter: after}
}

func decide(r *Recorder, id string, needs []throttle.Need, d throttle.Decision) {
	r.CountDecision("default", id, needs, d)
}

func run(r *Recorder, t Task, end End) { r.StartJob(t)(end) }

func TestWhatIsWrittenIsRead(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		r := New(rdb, script.Prefix("s"))
		needs, d := allowed("api", 3)
		decide(r, "a", needs, d)
		needs, d = denied("api", "k", time.Minute)
		decide(r, strings.Repeat("b", 300), needs, d)
		run(r, Task{"default", "mail"}, Done)
		run(r, Task{"default", "mail"}, Failed)
		r.write(ctx)
		r.write(ctx) // nothing is new
		running := r.StartJob(Task{"low", "mail"})
		r.write(ctx)
		running(Archived)
		r.write(ctx)

		all, err := ReadSummaries(ctx, rdb, "s", "")
		if err != nil || len(all) != 3 {
			t.Fatalf("read %v, %v; want 3 summaries", all, err)
		}
		want := Summary{
			ID: all[0].ID, At: all[0].At, Process: r.process,
			Limits: map[string]LimitSummary{"api": {
				Allowed: 1, Denied: 1, Permits: 3,
				Denial: &Denial{Queue: "default", ID: strings.Repeat("b", 200), Key: "k", RetryAfter: time.Minute},
			}},
			Tasks: []TaskSummary{{Task: Task{"default", "mail"}, Ends: Counts{Done: 1, Failed: 1}}},
		}
		if diff := cmp.Diff(want, all[0]); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]TaskSummary{{Task: Task{"low", "mail"}, Running: 1}}, all[1].Tasks); diff != "" {
			t.Errorf("second (-want +got):\n%s", diff)
		}
		if later, err := ReadSummaries(ctx, rdb, "s", all[1].ID); err != nil || len(later) != 1 || later[0].ID != all[2].ID {
			t.Errorf("after the second: %v, %v; want the third", later, err)
		}
		totals, err := ReadTotals(ctx, rdb, "s")
		wantTotals := map[Task]Counts{{"default", "mail"}: {Done: 1, Failed: 1}, {"low", "mail"}: {Archived: 1}}
		if diff := cmp.Diff(wantTotals, totals); diff != "" || err != nil {
			t.Errorf("totals, %v (-want +got):\n%s", err, diff)
		}
	})
}

// twice carries each call out twice, as a client does whose answers get lost.
func twice(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if err := next(ctx, cmd); err != nil {
		return err
	}
	return next(ctx, cmd)
}

// TestWrittenOnce: a call that the client repeats counts once, and the next one too.
func TestWrittenOnce(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rdb.AddHook(redistest.Hook(twice))
		r := New(rdb, script.Prefix("s"))
		for range 2 {
			run(r, Task{"default", "mail"}, Done)
			r.write(t.Context())
		}
		all, err := ReadSummaries(t.Context(), rdb, "s", "")
		totals, failed := ReadTotals(t.Context(), rdb, "s")
		if err != nil || failed != nil || len(all) != 2 || totals[Task{"default", "mail"}][Done] != 2 {
			t.Errorf("read %v, %v and %v, %v; want 2 summaries of one job", all, err, totals, failed)
		}
	})
}

// TestNewsAreKeptInAnOutage: what could not be written comes with the next.
func TestNewsAreKeptInAnOutage(t *testing.T) {
	m, rdb := redistest.Mini(t)
	r := New(rdb, script.Prefix("s"))
	run(r, Task{"default", "mail"}, Done)
	m.SetError("LOADING not now")
	r.write(t.Context())
	if n := r.FailedWrites.Load(); n != 1 {
		t.Errorf("%d failed tries counted, want 1", n)
	}
	m.SetError("")
	run(r, Task{"default", "mail"}, Done)
	r.write(t.Context())
	totals, err := ReadTotals(t.Context(), rdb, "s")
	if got := totals[Task{"default", "mail"}][Done]; got != 2 || err != nil {
		t.Errorf("%d done, %v; want 2", got, err)
	}
}

func TestNamesAreBounded(t *testing.T) {
	_, rdb := redistest.Mini(t)
	r := New(rdb, script.Prefix("s"))
	for i := range 1000 {
		run(r, Task{"default", fmt.Sprint("type-", i)}, Done)
		needs, d := allowed(fmt.Sprint("limit-", i), 1)
		decide(r, "x", needs, d)
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
	r.write(t.Context())
	all, err := ReadSummaries(t.Context(), rdb, "s", "")
	if err != nil || len(all) != 1 || len(all[0].Tasks) > maxWritten+1 || len(all[0].Limits) > maxWritten+1 {
		t.Fatalf("read %d summaries, %v; want one of at most %d tasks and limits", len(all), err, maxWritten+1)
	}
	sum, decisions := int64(0), int64(0)
	for _, task := range all[0].Tasks {
		sum += task.Ends[Done]
	}
	for _, limit := range all[0].Limits {
		decisions += limit.Allowed
	}
	if sum != 1008 || decisions != 1000 {
		t.Errorf("the summary tells of %d jobs and %d decisions, want 1008 and 1000", sum, decisions)
	}
}

// TestAQueueNamedOther: a queue and a type may bear the name that the rest is counted under.
func TestAQueueNamedOther(t *testing.T) {
	r := New(nil, script.Prefix("s"))
	for _, task := range []Task{{Other, "mail"}, {"mail", Other}, {"mail", "control\n"}} {
		run(r, task, Done)
	}
	got := map[Task]int64{}
	for _, c := range r.Tasks() {
		got[c.Task] = c.Ends[Done]
	}
	if diff := cmp.Diff(map[Task]int64{{Other, "mail"}: 1, {"mail", Other}: 1, {Other, Other}: 1}, got); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}

func TestTotalsAreBounded(t *testing.T) {
	_, rdb := redistest.Mini(t)
	ctx := t.Context()
	for i := range maxTotals {
		rdb.HSet(ctx, script.Prefix("s")+"totals", fmt.Sprintf("q\nt%d\ndone", i), 1)
	}
	r := New(rdb, script.Prefix("s"))
	for i := range 100 {
		run(r, Task{"default", fmt.Sprint("more-", i)}, Done)
		r.write(ctx)
	}
	if n := rdb.HLen(ctx, script.Prefix("s")+"totals").Val(); n != maxTotals+1 {
		t.Errorf("the totals have %d fields, want %d", n, maxTotals+1)
	}
}

// TestTheStreamEnds: summaries go after a quarter of an hour, by Redis's clock.
func TestTheStreamEnds(t *testing.T) {
	m, rdb := redistest.Mini(t)
	r := New(rdb, script.Prefix("s"))
	began := time.Now().Add(-24 * time.Hour) // what this process's clock says does not matter
	for minute := range 40 {
		m.SetTime(began.Add(time.Duration(minute) * time.Minute))
		run(r, Task{"default", "mail"}, Done)
		r.write(t.Context())
	}
	all, err := ReadSummaries(t.Context(), rdb, "s", "")
	if err != nil || len(all) != 17 {
		t.Errorf("%d summaries, %v; want those of 16 minutes and now", len(all), err)
	}
}

func TestRubbishIsNotRead(t *testing.T) {
	_, rdb := redistest.Mini(t)
	ctx := t.Context()
	rdb.XAdd(ctx, &redis.XAddArgs{Stream: script.Prefix("s") + "history", Values: []any{"s", "{"}})
	rdb.XAdd(ctx, &redis.XAddArgs{Stream: script.Prefix("s") + "history", Values: []any{"other", "{}"}})
	rdb.HSet(ctx, script.Prefix("s")+"totals", "a", 1, "a\nb\nc", 1, "a\nb\ndone", "x")
	all, err := ReadSummaries(ctx, rdb, "s", "")
	totals, errTotals := ReadTotals(ctx, rdb, "s")
	if len(all)+len(totals) > 0 || err != nil || errTotals != nil {
		t.Errorf("read %v, %v, %v, %v; want nothing", all, totals, err, errTotals)
	}
}

func TestHistogram(t *testing.T) {
	h := newHistogram([]float64{1, 2, 4})
	for _, v := range []float64{0, 1, 1.5, 2, 3, 100} {
		h.observe(v)
	}
	count, sum, buckets := h.Snapshot()
	if count != 6 || sum != 107.5 {
		t.Errorf("count %d, sum %v; want 6 and 107.5", count, sum)
	}
	if diff := cmp.Diff(map[float64]uint64{1: 2, 2: 4, 4: 5}, buckets); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
}

// BenchmarkJob is what one job costs.
func BenchmarkJob(b *testing.B) {
	r := New(nil, "")
	needs, d := allowed("api", 1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.ObserveLimiterCall(time.Millisecond, false)
			r.CountDecision("default", "id", needs, d)
			r.StartJob(Task{"default", "mail"})(Done)
		}
	})
}
