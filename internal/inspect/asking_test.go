package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestStatus_AskingJobs: a job that asks for its permits is active in asynq, and one that was denied
// is in asynq's retry set. Neither runs, and neither has failed.
func TestStatus_AskingJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPendingWorld(t, func(string) []throttle.Need { return nil })
		ctx, q, db := t.Context(), w.queues(), asynqdb.New(w.rdb)
		must(t, w.limiter.Define(ctx, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}))
		take := func(n int) []asynqdb.Job {
			t.Helper()
			jobs, err := db.Dequeue(ctx, asynqdb.NewDequeue("default", time.Now().Add(time.Minute).Unix(), false), n)
			must(t, err)
			return jobs
		}
		ask := func(j asynqdb.Job) {
			t.Helper()
			_, err := w.limiter.Acquire(ctx, waitdb.Job{JobID: j.JobID}, throttle.Need{Limit: "api"})
			must(t, err)
		}
		check := func(counts string, lists map[string]string) {
			t.Helper()
			status, err := q.Status(ctx, false)
			must(t, err)
			s := status.Queues[0]
			if got := fmt.Sprintf("pending %d waiting %d active %d retry %d", s.Pending, s.Waiting, s.Active, s.Retry); got != counts {
				t.Errorf("%s, want %s", got, counts)
			}
			for state, want := range lists {
				var ids []string
				for job, err := range q.List(ctx, inspect.Filter{States: []string{state}}) {
					must(t, err)
					ids = append(ids, job.ID)
				}
				if got := strings.Join(ids, " "); got != want {
					t.Errorf("%s: %q, want %q", state, got, want)
				}
			}
		}
		w.enqueue(6)
		first := take(2) // 0 runs, 1 was put back by its handler
		ask(first[0])
		check("pending 4 waiting 0 active 2 retry 0", map[string]string{"active": "0 1"}) // nothing was denied yet
		later := &asynqdb.PutBack{Job: first[1], At: time.Now().Add(time.Hour)}
		db.PutBack(ctx, "default", later)
		must(t, later.Err)
		time.Sleep(time.Second)
		jobs := take(3) // 2 was denied and put back, 3 was denied, 4 has not asked yet
		ask(jobs[0])
		back := &asynqdb.PutBack{Job: jobs[0], At: time.Now().Add(time.Hour), Scope: "default"}
		db.PutBack(ctx, "default", back)
		must(t, back.Err)
		ask(jobs[1])
		check("pending 2 waiting 2 active 1 retry 1", map[string]string{"active": "0", "waiting": "2 3", "retry": "1", "pending": "5 4"})
		done, err := q.Apply(ctx, inspect.Delete, inspect.Filter{}, []throttle.JobID{jobs[1].JobID, jobs[2].JobID})
		if done != 0 || err != nil {
			t.Errorf("deleted %d jobs that a worker has, %v", done, err)
		}
		time.Sleep(time.Second) // 4 got its permits
		check("pending 1 waiting 2 active 2 retry 1", map[string]string{"active": "0 4", "pending": "5"})
	})
}

// TestCountDenied: the count is exact up to 20,000 jobs. Of more, bounded scripts read a part.
func TestCountDenied(t *testing.T) {
	rdb := redistest.Real(t) // miniredis sorts a set at each command
	ctx, db := t.Context(), asynqdb.New(rdb)
	at := time.Now().Unix()
	add := func(from, to int) {
		err := rdb.Eval(ctx, `
for i = tonumber(ARGV[1]), ARGV[2] - 1 do
  redis.call('ZADD', KEYS[1], ARGV[3], i)
  redis.call('HSET', KEYS[2] .. i, 'denied', i % 10 > 0 and ARGV[3] or '')
end`, []string{asynqdb.Key("q", asynqdb.Retry), asynqdb.Hash("q", "")}, from, to, at).Err()
		if !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	scripts := 0
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			scripts++
			first, isInt := cmd.Args()[5].(int)
			if last, _ := cmd.Args()[6].(int); isInt && cmd.Args()[4] == asynqdb.Hash("q", "") && last-first >= 1000 && len(cmd.Args()) == 7 {
				t.Errorf("a script reads %v", cmd.Args()[5:])
			}
		}
		return next(ctx, cmd)
	}))
	count := func(size, want, slack int) {
		t.Helper()
		if got, err := db.CountDenied(ctx, "q", size); err != nil || max(got-want, want-got) > slack {
			t.Errorf("%d of %d jobs, %v; want %d", got, size, err, want)
		}
	}
	count(0, 0, 0)
	add(0, 1001)
	count(1001, 900, 0)
	add(1001, 25_000)
	scripts = 0
	count(25_000, 22_500, 300)
	if scripts > 20 {
		t.Errorf("%d scripts, want at most 20", scripts)
	}
}
