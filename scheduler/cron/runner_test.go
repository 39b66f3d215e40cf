package cron

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
)

func TestOverlapSkip(t *testing.T) {
	inBubble(t, func(b *bubble) {
		rdb := redistest.MiniClient(b, b.m)
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		r := b.start(func(r *replica) { r.queue = asynq.NewClientFromRedisClient(rdb) }, hourly(func(e *Entry) { e.Overlap = OverlapSkip }))
		want := func(enqueued, skipped int64, outcome string) {
			b.Helper()
			if s := b.list(r); s.Enqueued != enqueued || s.Skipped != skipped || s.Outcome != outcome {
				b.Errorf("%+v; want %d enqueued, %d skipped, the last %s", s, enqueued, skipped, outcome)
			}
		}
		until(2, 30) // the job of 1:00 waits, so that of 2:00 is skipped
		want(1, 1, "skipped: job "+sweepIDs(1)[0]+" is pending")
		b.must(tasks.ArchiveTask("default", sweepIDs(1)[0]))
		until(3, 30) // the job of 1:00 has ended, so that of 3:00 is added
		id, err := r.Trigger(b.Context(), "sweep")
		b.must(err)
		until(4, 30) // the job of 3:00 blocks that of 4:00, and the triggered one that of 5:00
		b.must(tasks.DeleteTask("default", sweepIDs(3)[0]))
		until(5, 30)
		want(2, 3, "skipped: job "+id+" is pending")
		b.must(tasks.DeleteTask("default", id))
		until(6, 30)
		r.end()
		want(3, 3, "enqueued")
	})
}

// A tick says which job it waits for, and in what state. A job that comes again after the next two
// ticks does not count as unfinished, unless the entry says so. A job that waits for permits does.
func TestOverlapSkip_States(t *testing.T) {
	const never = 1 << 30
	for name, row := range map[string]struct {
		counts  OverlapCounts
		state   string
		comesIn time.Duration // after the tick of 2:00
		denied  bool
		outcome string
	}{
		"active":                    {state: "active", outcome: "is active"},
		"waits for permits":         {state: "retry", comesIn: 9 * time.Hour, denied: true, outcome: "waits for permits"},
		"retried within two ticks":  {state: "retry", comesIn: 2 * time.Hour, outcome: "comes again at 2000-01-01T04:00:00Z"},
		"retried after two ticks":   {state: "retry", comesIn: 2*time.Hour + time.Second},
		"retried, all count":        {counts: CountsRetrying, state: "retry", comesIn: 9 * time.Hour, outcome: "comes again at 2000-01-01T11:00:00Z"},
		"archived, all count":       {counts: CountsRetrying, state: "archived"},
		"scheduled, for its jitter": {state: "scheduled", comesIn: never, outcome: "is scheduled"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				rdb := redistest.MiniClient(b, b.m)
				r := b.start(func(r *replica) { r.queue = asynq.NewClientFromRedisClient(rdb) }, hourly(func(e *Entry) { e.Overlap, e.OverlapCounts = OverlapSkip, row.counts }))
				until(1, 30)
				id, key := sweepIDs(1)[0], func(name string) string { return asynqdb.Key("default", name) }
				at := time.Date(2000, 1, 1, 2, 0, 0, 0, time.UTC).Add(min(row.comesIn, 100*time.Hour)).Unix()
				denied := ""
				if row.denied {
					denied = fmt.Sprint(at)
				}
				rdb.LRem(b.Context(), key(asynqdb.Pending), 0, id)
				rdb.HSet(b.Context(), asynqdb.Hash("default", id), "state", row.state, "denied", denied)
				if row.state == "active" {
					rdb.LPush(b.Context(), key(asynqdb.Active), id)
				} else {
					rdb.ZAdd(b.Context(), key(row.state), redis.Z{Score: float64(at), Member: id})
				}
				until(2, 30)
				r.end()
				want := "enqueued"
				if row.outcome != "" {
					want = "skipped: job " + id + " " + row.outcome
				}
				if s := b.list(r); s.Outcome != want {
					b.Errorf("got %q, want %q", s.Outcome, want)
				}
			})
		})
	}
}

func TestJobOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Entry)
		want   string
	}{
		"plain": {nil, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		"own": {func(e *Entry) {
			e.Queue = "low"
			e.Options = []asynq.Option{asynq.MaxRetry(3), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)}
		}, `[MaxRetry(3) Timeout(1m0s) TaskID("sweep@946688400") Queue("low") Retention(1h0m0s)]`},
		"short retention": {func(e *Entry) { e.Options = []asynq.Option{asynq.Retention(time.Second)} }, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		"jitter":          {func(e *Entry) { e.Jitter = time.Hour }, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s) ProcessIn(47m35s)]`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.start(nil, hourly(tc.change))
				until(1, 30)
				b.wantTicks(1)
				if got := fmt.Sprint(b.q.opts); got != tc.want {
					b.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

// TestRun_Scopes_ShareNothing runs two programs on one Redis and one queue, with an entry of the same
// name.
func TestRun_Scopes_ShareNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for _, scope := range []string{"", "default", "billing", "audit"} {
			b.start(func(r *replica) { r.scope = scope }, hourly(nil))
		}
		until(2, 30)
		b.must(b.started[2].Pause(b.Context(), "sweep"))
		until(3, 30)
		for _, r := range b.started {
			r.end()
		}
		times := map[string]int{}
		for _, id := range b.q.ids() {
			scope, _, _ := strings.Cut(id, "sweep@")
			times[scope]++
		}
		if want := map[string]int{"": 3, "audit/": 3, "billing/": 2}; fmt.Sprint(times) != fmt.Sprint(want) {
			b.Errorf("ticks %v, want %v: %v", times, want, slices.Sorted(slices.Values(b.q.ids())))
		}
	})
}

// TestOverlapSkip_Shards: in a queue with shards the jobs of an entry's ticks, and a triggered one,
// are found in their shards, although two replicas enqueue each tick.
func TestOverlapSkip_Shards(t *testing.T) {
	inBubble(t, func(b *bubble) {
		rdb := redistest.MiniClient(b, b.m)
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		sharded := func(r *replica) {
			r.queue = scheduler.NewClient(rdb, scheduler.Shards{Queue: "crawl", Count: 16})
		}
		entry := hourly(func(e *Entry) { e.Overlap, e.Queue = OverlapSkip, "crawl" })
		r := b.start(sharded, entry)
		other := b.start(sharded, entry)
		unfinished := func() (queues []string) {
			names, err := tasks.Queues()
			b.must(err)
			for _, name := range names {
				pending, err := tasks.ListPendingTasks(name)
				b.must(err)
				for _, job := range pending {
					queues = append(queues, job.Queue)
				}
			}
			return queues
		}
		until(8, 30)
		queues := unfinished()
		if len(queues) != 1 {
			b.Fatalf("after 8 ticks, unfinished jobs are in %v, want one", queues)
		}
		b.must(tasks.DeleteTask(queues[0], sweepIDs(1)[0]))
		_, err := r.Trigger(b.Context(), "sweep")
		b.must(err)
		until(12, 30)
		if queues := unfinished(); len(queues) != 1 {
			b.Errorf("after a trigger and 4 ticks, unfinished jobs are in %v, want one", queues)
		}
		r.end()
		other.end()
	})
}
