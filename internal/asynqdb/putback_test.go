package asynqdb_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func TestPromoteMovesToTheHead(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		db, tasks := asynqdb.New(rdb), asynq.NewInspectorFromRedisClient(rdb)
		a, b, c := addDenied(t, db, "a"), addDenied(t, db, "b"), addDenied(t, db, "c")
		archived := addDenied(t, db, "archived")
		if err := tasks.ArchiveTask("default", archived); err != nil {
			t.Fatal(err)
		}
		newcomer := add(t, rdb, "newcomer")
		later := add(t, rdb, "later", asynq.ProcessIn(2*time.Hour))
		fates, err := db.Promote(ctx, named(a, b, newcomer, later, archived, "deleted")...)
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"moved", "moved", "pending", "done", "done", "gone"}; !slices.Equal(fates, want) {
			t.Errorf("a, b, newcomer, later, archived and deleted are %v, want %v", fates, want)
		}
		if fates, err = db.Promote(ctx, named(c, c)...); err != nil || fates[1] != "pending" {
			t.Errorf("the second time c is %v, %v; want pending", fates, err)
		}
		for _, id := range []string{"a", "b", "c"} {
			info, err := tasks.GetTaskInfo("default", id)
			if err != nil || info.State != asynq.TaskStatePending {
				t.Errorf("%s: %+v, %v; want pending", id, info, err)
			}
		}
		info, err := tasks.GetQueueInfo("default")
		if err != nil || info.Pending != 4 || info.Retry != 0 || info.Scheduled != 1 || info.Latency <= 0 {
			t.Errorf("queue: %+v, %v; want 4 pending, 1 scheduled, some latency", info, err)
		}
		if got := order(t, rdb, 4); !slices.Equal(got, []string{"a", "b", "c", "newcomer"}) {
			t.Errorf("asynq's server runs %v, want a, b, c, newcomer", got)
		}
	})
}

// add enqueues a job with asynq's own client.
func add(t *testing.T, rdb redis.UniversalClient, id string, opts ...asynq.Option) string {
	t.Helper()
	_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), append(opts, asynq.TaskID(id))...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// addDenied is add of a job that was denied for an hour. No other is pending.
func addDenied(t *testing.T, db asynqdb.DB, id string, opts ...asynq.Option) string {
	t.Helper()
	add(t, db.Redis, id, opts...)
	if err := db.Deny(t.Context(), "default", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return id
}

// A job whose handler failed waits in the retry set as a denied one does. It
// waits for its backoff, and nothing of ours may cut that short.
func TestFailedJobsAreLeftAlone(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		db := asynqdb.New(rdb)
		failed, denied := addDenied(t, db, "failed"), addDenied(t, db, "denied")
		rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(time.Now().Add(10 * time.Minute).Unix()), Member: failed}) // as asynq's Retry does
		if fates, err := db.Promote(ctx, named(failed)...); err != nil || fates[0] != "done" {
			t.Errorf("promoted: %v, %v; want done", fates, err)
		}
		at := time.Now().Add(3 * time.Hour)
		if err := db.Postpone(ctx, "default", map[string]time.Time{failed: at, denied: at, "gone": at}); err != nil {
			t.Fatal(err)
		}
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		for id, want := range map[string]time.Duration{failed: 10 * time.Minute, denied: 3 * time.Hour} {
			info, err := tasks.GetTaskInfo("default", id)
			if err != nil || time.Until(info.NextProcessAt).Round(time.Minute) != want {
				t.Errorf("%s returns at %v, %v; want in %s", id, info.NextProcessAt, err, want)
			}
		}
		if fates, err := db.Promote(ctx, named(denied)...); err != nil || fates[0] != "moved" {
			t.Errorf("a postponed job is %v, %v; want moved", fates, err)
		}
	})
}

// A job whose worker died returns with asynq's next poll: it is not taken for one that
// waits for something else, or it would lose its place in its lane.
func TestRecoveredJobsCome(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		j := add(t, rdb, "it")
		db := asynqdb.New(rdb)
		taken, err := db.Dequeue(ctx, asynqdb.NewDequeue("default", time.Now().Unix(), false), 1)
		if err != nil {
			t.Fatal(err)
		}
		if forgiven, err := db.Forgive(ctx, it("", taken[0].Msg), 1); err != nil || !forgiven {
			t.Fatal(forgiven, err)
		}
		if fates, err := db.Promote(ctx, named(j)...); err != nil || fates[0] != "pending" {
			t.Errorf("a recovered job is %v, %v; want pending", fates, err)
		}
	})
}

func TestDeniedByPages(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		db := asynqdb.New(rdb)
		for i := range 150 {
			addDenied(t, db, fmt.Sprintf("%03d", i))
		}
		early := time.Now().Add(time.Minute)
		if err := db.Postpone(ctx, "default", map[string]time.Time{"149": early}); err != nil {
			t.Fatal(err)
		}
		rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Retry), redis.Z{Score: float64(time.Now().Add(time.Second).Unix()), Member: "000"}) // failed
		ids, next, err := db.Denied(ctx, "default", time.Time{}, early.Add(time.Minute), 0)
		if err != nil || next != -1 || !slices.Equal(ids, []string{"149"}) {
			t.Errorf("due within 2 minutes: %v, %d, %v; want 149 and no more pages", ids, next, err)
		}
		if ids, _, err := db.Denied(ctx, "default", early.Add(time.Second), time.Time{}, 0); err != nil || slices.Contains(ids, "149") {
			t.Errorf("due later than 149: %v, %v; want all but 149", ids, err)
		}
		ids, next, err = db.Denied(ctx, "default", time.Time{}, time.Time{}, 0)
		if err != nil || next != asynqdb.Page || len(ids) != asynqdb.Page-1 || ids[0] != "149" {
			t.Errorf("first page: %d from %v on, %d, %v", len(ids), ids[:1], next, err)
		}
		ids, next, err = db.Denied(ctx, "default", time.Time{}, time.Time{}, next)
		if err != nil || next != -1 || len(ids) != 50 {
			t.Errorf("second page: %d, %d, %v; want 50, the last", len(ids), next, err)
		}
	})
}

// The lock of asynq's Unique holds for as long as its job waits.
func TestUniqueHoldsWhileAJobWaits(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		db := asynqdb.New(rdb)
		it := addDenied(t, db, "it", asynq.Unique(time.Minute))
		ttl := func() time.Duration {
			return rdb.TTL(t.Context(), lockOf("default", "job", nil)).Val().Round(time.Minute)
		}
		if got := ttl(); got != time.Hour+time.Minute {
			t.Errorf("the lock holds %s, want 1h1m", got)
		}
		if err := db.Postpone(t.Context(), "default", map[string]time.Time{it: time.Now().Add(3 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); got != 3*time.Hour+time.Minute {
			t.Errorf("the lock holds %s, want 3h1m", got)
		}
		if _, err := db.Promote(t.Context(), named(it)...); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); got != time.Minute {
			t.Errorf("the lock of a granted job holds %s, want what was left of its minute", got)
		}
		if rdb.HExists(t.Context(), asynqdb.Hash("default", it), "lock_ms").Val() {
			t.Error("what was left is kept")
		}
	})
}

// order lets an asynq server with one worker run n jobs.
func order(t *testing.T, rdb redis.UniversalClient, n int) []string {
	t.Helper()
	ids := make(chan string, n)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ids <- id
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	var got []string
	for range n {
		got = append(got, <-ids)
	}
	return got
}
