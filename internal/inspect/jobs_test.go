package inspect

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// many returns a Redis with pending jobs, or with jobs archived one a second.
func many(t *testing.T, n int, archived bool) *Queues {
	t.Helper()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(redistest.Patient(&redis.Options{Addr: m.Addr()}))
	q := New(waitdb.New(throttle.New(rdb, throttle.Options{})))
	t.Cleanup(q.Close)
	client := scheduler.NewClient(rdb)
	began := time.Now().Add(-time.Hour).Unix()
	for i := range n {
		id := fmt.Sprint(i)
		_, err := client.Enqueue(asynq.NewTask("mine", nil, asynq.TaskID(id)))
		if err == nil && archived {
			err = q.Inspector.ArchiveTask("default", id)
			rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Archived), redis.Z{Score: float64(began + int64(i)), Member: id})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// TestList lists each job once: pending jobs in order, archived jobs newest first with the time at
// which they were archived. A job whose hash is lost has its ID and says so.
func TestList(t *testing.T) {
	const n = 2*pageSize + 30
	for _, archived := range []bool{false, true} {
		var listed []int
		q, lost := many(t, n, archived), []string{"0", "1", "120", fmt.Sprint(n - 1)}
		for _, id := range lost {
			q.rdb.Del(t.Context(), asynqdb.Hash("default", id))
		}
		for job, err := range q.List(t.Context(), Filter{}) {
			if isLost := slices.Contains(lost, job.ID); isLost != (job.LastErr == "Redis has lost the data of this job") || job.Queue != "default" {
				t.Errorf("job %q of queue %q says %q", job.ID, job.Queue, job.LastErr)
			}
			i, errID := strconv.Atoi(job.ID)
			if err != nil || errID != nil || archived && job.Since.After(time.Now().Add(-55*time.Minute)) {
				t.Fatalf("%+v, %v", job, err)
			}
			listed = append(listed, i)
		}
		if archived {
			slices.Reverse(listed)
		}
		if !slices.IsSorted(listed) || len(listed) != n || len(slices.Compact(listed)) != n {
			t.Errorf("archived %v: want %d jobs in order, each once: %v", archived, n, listed)
		}
	}
}

// A page of large jobs is read in pieces: no reply has more than MaxReply bytes. The jobs are listed in
// the same order, and each once.
func TestList_LargeJobs(t *testing.T) {
	for _, state := range []string{"pending", "completed"} {
		const jobs = 11
		q, largest, now := many(t, 0, false), 0, time.Now().Unix()
		q.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if reply, ok := cmd.(*redis.Cmd); ok {
				largest = max(largest, len(fmt.Sprint(reply.Val())))
			}
			return err
		}))
		for i := range jobs {
			if _, err := scheduler.NewClient(q.rdb).Enqueue(asynq.NewTask("mine", bytes.Repeat([]byte("x"), 2e6), asynq.TaskID(fmt.Sprint(i)))); err != nil {
				t.Fatal(err)
			}
			if state == "completed" { // a job with a small payload and a large result
				id := fmt.Sprint(i)
				msg := q.rdb.HGet(t.Context(), asynqdb.Hash("default", id), "msg").Val()
				q.rdb.HSet(t.Context(), asynqdb.Hash("default", id), "state", "completed", "msg", asynqdb.WithPayload([]byte(msg), nil), "result", strings.Repeat("y", 2e6))
				q.rdb.LRem(t.Context(), asynqdb.Key("default", asynqdb.Pending), 0, id)
				q.rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Completed), redis.Z{Score: float64(now + int64(100-i)), Member: id})
			}
		}
		var listed []string
		for job, err := range q.List(t.Context(), Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, job.ID)
		}
		if want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}; !slices.Equal(listed, want) {
			t.Errorf("%s: listed %v, want %v", state, listed, want)
		}
		if largest > asynqdb.MaxReply+100_000 {
			t.Errorf("%s: a reply has %d bytes, want at most %d", state, largest, asynqdb.MaxReply)
		}
	}
}

// TestList_Order checks that the jobs that may need a person come first, across all queues. A retried
// job behind pages of waiting jobs comes before them.
func TestList_Order(t *testing.T) {
	ctx, n := t.Context(), 2*pageSize
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	q := many(t, n, false)
	check(q.Limiter.Set(ctx, throttle.Limit{Name: "slow", Kind: throttle.Concurrency, Capacity: 1}))
	put := func(queue, id, state string, score int) {
		t.Helper()
		check(q.rdb.LRem(ctx, asynqdb.Key(queue, asynqdb.Pending), 0, id).Err())
		check(q.rdb.ZAdd(ctx, asynqdb.Key(queue, state), redis.Z{Score: float64(time.Now().Unix() + int64(score)), Member: id}).Err())
		check(q.rdb.HSet(ctx, asynqdb.Hash(queue, id), "state", state).Err())
	}
	for i := range n - 3 {
		id := fmt.Sprint(i)
		_, err := q.Limiter.Acquire(ctx, waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}}, throttle.Need{Limit: "slow"})
		check(err)
		put("default", id, asynqdb.Retry, 100+i)
	}
	put("default", fmt.Sprint(n-3), asynqdb.Retry, 10_000)
	put("default", fmt.Sprint(n-2), asynqdb.Completed, 1)
	client := scheduler.NewClient(q.rdb)
	for id, state := range map[string]string{"a": asynqdb.Archived, "r": asynqdb.Retry} {
		_, err := client.Enqueue(asynq.NewTask("mine", nil, asynq.TaskID(id)), asynq.Queue("other"))
		check(err)
		put("other", id, state, 50)
	}
	var order []string
	for job, err := range q.List(ctx, Filter{}) {
		check(err)
		if entry := job.State + " in " + job.Queue; !slices.Contains(order, entry) {
			order = append(order, entry)
		}
	}
	want := []string{"archived in other", "retry in default", "retry in other", "waiting in default", "pending in default", "completed in default"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}
