package asynqdb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestReconcile: an active job without a lease gets one, and a lease of no active job goes.
func TestReconcile(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, db := t.Context(), asynqdb.New(rdb)
		active, lease := asynqdb.Key("default", asynqdb.Active), asynqdb.Key("default", asynqdb.Lease)
		for _, id := range []string{"whole", "no lease", "not listed"} {
			add(t, rdb, id)
		}
		if _, err := db.Dequeue(ctx, asynqdb.NewDequeue("default", 7, false), 3); err != nil {
			t.Fatal(err)
		}
		rdb.ZRem(ctx, lease, "no lease")
		rdb.LRem(ctx, active, 0, "not listed")
		rdb.ZAdd(ctx, lease, redis.Z{Score: 8, Member: "gone"})
		if restored, lost, err := db.Reconcile(ctx, "default"); restored != 2 || !slices.Equal(lost, []string{"gone"}) || err != nil {
			t.Errorf("%d entries restored, jobs %q lost, %v; want 2 and gone", restored, lost, err)
		}
		if restored, lost, err := db.Reconcile(ctx, "default"); restored != 0 || lost != nil || err != nil {
			t.Errorf("%d entries restored again, jobs %q lost, %v", restored, lost, err)
		}
		got := rdb.LRange(ctx, active, 0, -1).Val()
		slices.Sort(got)
		if want := []string{"no lease", "not listed", "whole"}; !slices.Equal(got, want) {
			t.Errorf("active: %q, want %q", got, want)
		}
		leases, err := db.Leases(ctx, "default", time.Now().Add(time.Hour))
		if err != nil || len(leases) != 3 || leases[2].ID != "no lease" || time.Until(time.Unix(leases[2].Ends, 0)) < asynqdb.LeaseTime-2*time.Second {
			t.Errorf("leases: %v, %v; want one of 30 s for the job that had none", leases, err)
		}
	})
}

// A server ends its lease of a job also if Redis has lost the job from the active list or its
// lease.
func TestLostEntryOfAnActiveJob(t *testing.T) {
	for _, lost := range []string{asynqdb.Active, asynqdb.Lease} {
		for _, end := range []string{"retry", "pending"} {
			t.Run(lost+"/"+end, func(t *testing.T) {
				redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
					ctx, db := t.Context(), asynqdb.New(rdb)
					add(t, rdb, "it")
					d := asynqdb.NewDequeue("default", leaseEnd, false)
					if _, err := db.Dequeue(ctx, d, 1); err != nil {
						t.Fatal(err)
					}
					rdb.Del(ctx, asynqdb.Key("default", lost))
					if end == "retry" {
						j := &asynqdb.PutBack{Job: it(d.Name, messageOf(t, db)), At: time.Now().Add(time.Hour)}
						if db.PutBack(ctx, "default", j); j.Err != nil {
							t.Error(j.Err)
						}
					} else if err := db.GiveBack(ctx, it(d.Name, nil)); err != nil {
						t.Error(err)
					}
					info, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default")
					if err != nil || info.Size != 1 || info.Active != 0 || stateOf(t, db) != end {
						t.Errorf("the job is %s, queue: %+v, %v; want it %s", stateOf(t, db), info, err, end)
					}
				})
			})
		}
	}
}

// TestRestore_HalfWrittenEnd: Redis has lost the second half of the writes that end an attempt. The job is
// active, and in no other set.
func TestRestore_HalfWrittenEnd(t *testing.T) {
	sets := []string{asynqdb.Retry, asynqdb.Scheduled, asynqdb.Archived, asynqdb.Completed}
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, db := t.Context(), asynqdb.New(rdb)
		for _, set := range sets {
			add(t, rdb, set)
		}
		if _, err := db.Dequeue(ctx, asynqdb.NewDequeue("default", leaseEnd, false), len(sets)); err != nil {
			t.Fatal(err)
		}
		rdb.Del(ctx, asynqdb.Key("default", asynqdb.Active), asynqdb.Key("default", asynqdb.Lease))
		for _, set := range sets {
			rdb.ZAdd(ctx, asynqdb.Key("default", set), redis.Z{Score: 1, Member: set})
		}
		if restored, _, err := db.Restore(ctx, "default", sets...); restored != len(sets) || err != nil {
			t.Errorf("%d restored, %v; want %d", restored, err, len(sets))
		}
		for _, set := range sets {
			if ids := rdb.ZRange(ctx, asynqdb.Key("default", set), 0, -1).Val(); len(ids) > 0 {
				t.Errorf("%s: %q, want none", set, ids)
			}
		}
		if active := rdb.LLen(ctx, asynqdb.Key("default", asynqdb.Active)).Val(); int(active) != len(sets) {
			t.Errorf("%d active jobs, want %d", active, len(sets))
		}
	})
}

// TestRestoreKeepsOrder: pending jobs that were lost run before those enqueued since, the
// oldest first.
func TestRestoreKeepsOrder(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, db := t.Context(), asynqdb.New(rdb)
		for _, id := range []string{"1", "2", "3"} {
			add(t, rdb, id)
		}
		rdb.Del(ctx, asynqdb.Key("default", asynqdb.Pending), "asynq:queues")
		add(t, rdb, "4")
		for _, want := range []int{3, 0} {
			if restored, _, err := db.Restore(ctx, "default", "2", "3", "1", "4", "2", "5"); restored != want || err != nil {
				t.Errorf("%d restored, %v; want %d", restored, err, want)
			}
		}
		if got := order(t, rdb, 4); !slices.Equal(got, []string{"1", "2", "3", "4"}) {
			t.Errorf("asynq's server runs %v, want 1 to 4", got)
		}
	})
}

// TestNothingIsLost: whatever is done to jobs by asynq's scripts and ours, none is taken for one
// that Redis has lost.
func TestNothingIsLost(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, db, tasks := t.Context(), asynqdb.New(rdb), asynq.NewInspectorFromRedisClient(rdb)
		dice := rand.New(rand.NewPCG(1, 2))
		var ids []string
		taken := map[string]asynqdb.Job{}
		for i := range 200 {
			var id string
			if len(ids) > 0 {
				id = ids[dice.IntN(len(ids))]
			}
			switch job, ok := taken[id]; dice.IntN(9) {
			case 0, 1:
				ids = append(ids, add(t, rdb, fmt.Sprint(i), []asynq.Option{asynq.ProcessIn(time.Duration(dice.IntN(2)) * time.Hour)}...))
			case 2:
				d := asynqdb.NewDequeue("default", leaseEnd, false)
				jobs, err := db.Dequeue(ctx, d, 1+dice.IntN(3))
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range jobs {
					taken[j.ID] = j
				}
			case 3, 4:
				if ok {
					db.PutBack(ctx, "default", &asynqdb.PutBack{Job: job, At: time.Now().Add(time.Hour), Scope: "s"})
				}
			case 5:
				_, _ = db.Promote(ctx, named(ids...)...)
			case 6:
				if ok {
					_ = db.GiveBack(ctx, asynqdb.Job{JobID: job.JobID, Dequeue: job.Dequeue})
				}
			case 7:
				if ok {
					_, _ = db.Forgive(ctx, job, 1000)
				}
			case 8:
				_ = tasks.RunTask("default", id) // some cannot
			}
			before := redistest.ContentsOf(t, rdb, "asynq:*")
			restored, lost, err := db.Restore(ctx, "default", ids...)
			repaired, _, _ := db.Reconcile(ctx, "default")
			if diff := cmp.Diff(before, redistest.ContentsOf(t, rdb, "asynq:*")); len(ids) > 0 && diff != "" || restored+repaired+len(lost) != 0 || err != nil {
				t.Fatalf("%d restored and %d repaired, %v; before (-), after (+)\n%s", restored, repaired, err, diff)
			}
		}
	})
}
