package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// archiveJobs adds jobs to the archive of the queue "default", as if they had been archived at a time.
func archiveJobs(t *testing.T, rdb redis.UniversalClient, jobs int, at time.Time) {
	t.Helper()
	_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range jobs {
			id := fmt.Sprintf("%d-%d", at.Unix(), i)
			p.HSet(t.Context(), asynqdb.Hash("default", id), "msg", "", "state", "archived")
			p.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.Archived), redis.Z{Score: float64(at.Unix()), Member: id})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// archived returns the numbers of the archive's entries and of the hashes of archived jobs in the queue "default".
func archived(t *testing.T, rdb redis.UniversalClient) (entries, hashes int) {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, asynqdb.Hash("default", "*")).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if rdb.HGet(ctx, key, "state").Val() == "archived" {
			hashes++
		}
	}
	return int(rdb.ZCard(ctx, asynqdb.Key("default", asynqdb.Archived)).Val()), hashes
}

// A job that is archived deletes no other: neither after a failure, nor when it can never get its
// permits, nor when an operator archives it. asynq keeps 10,000.
func TestArchive_HasNoBound(t *testing.T) {
	s := settings{limits: []throttle.Limit{perMinute(60, 10)}, handle: func(context.Context, *asynq.Task) error { return errors.New("failed") }}
	s.rule = func(task *asynq.Task) (Rule, error) {
		if string(task.Payload()) == "impossible" {
			return Rule{Needs: []throttle.Need{{Limit: s.limits[0].Name, Cost: 11}}}, nil
		}
		return Rule{}, nil
	}
	rdb := redistest.Real(t)
	archiveJobs(t, rdb, 10000, time.Now())
	st := start(t, rdb, s)
	st.enqueue(asynq.NewTask("job", nil), asynq.MaxRetry(0))
	st.enqueue(asynq.NewTask("job", []byte("impossible")))
	id := st.enqueue(asynq.NewTask("later", nil), asynq.ProcessIn(time.Hour))
	if err := asynqdb.New(rdb).Inspector().ArchiveTask("default", id); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "archive of 10,003 jobs", func() (bool, any) {
		entries, hashes := archived(t, rdb)
		return entries >= 10003 || hashes < 10000, fmt.Sprint(entries, " entries, ", hashes, " hashes")
	})
	if entries, hashes := archived(t, rdb); entries != 10003 || hashes != 10003 {
		t.Errorf("the archive has %d jobs, and %d hashes; want 10,003 of each", entries, hashes)
	}
}

// Servers delete archived jobs after the archive retention.
func TestArchive_Retention(t *testing.T) {
	virtual(t, settings{options: []Option{WithArchiveRetention(time.Hour)}}, func(t *testing.T, st *stack) {
		want := func(jobs int) {
			t.Helper()
			if entries, hashes := archived(t, st.rdb); entries != jobs || hashes != jobs {
				t.Errorf("the archive has %d jobs, and %d hashes; want %d of each", entries, hashes, jobs)
			}
		}
		archiveJobs(t, st.rdb, 20, time.Now())
		time.Sleep(30 * time.Minute)
		archiveJobs(t, st.rdb, 10, time.Now())
		want(30)
		time.Sleep(32 * time.Minute)
		want(10)
		time.Sleep(30 * time.Minute)
		want(0)
	})
}

// More old jobs than fit into a page are deleted page by page. A script of asynq's fails then.
func TestArchive_Pages(t *testing.T) {
	rdb := redistest.Real(t)
	archiveJobs(t, rdb, asynqdb.ArchivePage+1, time.Unix(1000, 0))
	archiveJobs(t, rdb, 1, time.Unix(2000, 0))
	for _, want := range []int{asynqdb.ArchivePage, 1, 0} {
		deleted, err := asynqdb.New(rdb).ExpireArchived(t.Context(), "default", time.Unix(2000, 0))
		if err != nil || deleted != want {
			t.Errorf("deleted %d jobs, %v; want %d", deleted, err, want)
		}
	}
	if entries, hashes := archived(t, rdb); entries != 1 || hashes != 1 {
		t.Errorf("the archive has %d jobs, and %d hashes; want the new one", entries, hashes)
	}
}
