package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// batchSettings are a server whose jobs do what their payload says.
func batchSettings() settings {
	tried := sync.Map{}
	return settings{
		config: retrying(asynq.Config{Concurrency: 4, Queues: map[string]int{"default": 1, "other": 1}}, time.Second),
		rule: func(task *asynq.Task) (r Rule, _ error) {
			if string(task.Payload()) == "kept by rule" {
				r.Retention = time.Hour
			}
			return r, nil
		},
		handle: func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			switch string(task.Payload()) {
			case "fails":
				return errors.New("fails")
			case "is dropped":
				return asynq.RevokeTask
			case "fails once":
				if _, again := tried.LoadOrStore(id, true); !again {
					return errors.New("fails once")
				}
			}
			return nil
		},
	}
}

// batchJobs are how the jobs of a batch can end.
var batchJobs = []struct {
	payload, queue string
	opts           []asynq.Option
}{
	{"is done", "default", nil},
	{"is done", "other", []asynq.Option{asynq.Unique(time.Hour)}},
	{"is kept", "other", []asynq.Option{asynq.Retention(time.Hour)}},
	{"kept by rule", "default", nil},
	{"fails once", "default", nil},
	{"fails", "other", []asynq.Option{asynq.MaxRetry(0)}},
	{"is dropped", "default", nil},
	{"is deleted", "default", []asynq.Option{asynq.ProcessIn(time.Minute)}},
	{"is archived", "other", []asynq.Option{asynq.ProcessIn(time.Minute)}},
}

// addBatch opens a batch with a job of each kind, and closes it.
func addBatch(t *testing.T, c *Client, name string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.OpenBatch(t.Context(), name, asynq.NewTask("job", []byte("on done"), asynq.Queue("other"), asynq.Retention(time.Hour))))
	var tasks []*asynq.Task
	for i, j := range batchJobs {
		tasks = append(tasks, NewTask("job", []byte(j.payload), append(slices.Clone(j.opts), asynq.Queue(j.queue), numbered(name, i), InBatch(name))...))
	}
	for _, r := range c.EnqueueAll(t.Context(), tasks...) {
		must(r.Err)
	}
	must(c.CloseBatch(t.Context(), name))
}

func TestBatch(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		st := start(t, rdb, batchSettings())
		c := NewClient(rdb)
		addBatch(t, c, "b")
		st.must(st.tasks.DeleteTask("default", "b-0007"))
		st.must(st.tasks.ArchiveTask("other", "b-0008"))
		status, err := c.WaitBatch(t.Context(), "b", nil)
		st.must(err)
		if want := (Batch{Name: "b", Jobs: 9, Completed: 5, Failed: 2, Deleted: 2, Closed: true, Ended: status.Ended}); status != want || status.Ended.IsZero() {
			t.Errorf("status %+v", status)
		}
		proctest.Until(t, "the follow-up", func() (bool, any) {
			done, err := st.tasks.ListCompletedTasks("other")
			return slices.ContainsFunc(done, func(i *asynq.TaskInfo) bool { return string(i.Payload) == "on done" }), err
		})
		_, err = c.Enqueue(asynq.NewTask("job", nil), InBatch("b"))
		if wrong, ok := errors.AsType[*throttle.FieldError](err); !ok || !strings.Contains(wrong.Error(), "has ended") {
			t.Errorf("a job for a batch that has ended: %v", err)
		}
		if ttl := rdb.TTL(t.Context(), asynqdb.Key("other", asynqdb.Batches)+"b").Val(); ttl < 6*24*time.Hour || ttl > asynqdb.EndedBatchTime {
			t.Errorf("the ended batch is kept for %s", ttl)
		}
		if n := rdb.SCard(t.Context(), "asynq:headgate_batches").Val(); n != 0 {
			t.Errorf("servers look at %d batches", n)
		}
	})
}

// TestBatch_Unfinished: the jobs of a batch wait for a server, and the batch cannot end before it is closed.
func TestBatch_Unfinished(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c, tasks := NewClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		task := func(id string) *asynq.Task { return NewTask("job", nil, asynq.TaskID(id), InBatch("b")) }
		want := func(want Batch) {
			t.Helper()
			want.Name = "b"
			if got, err := c.Batch(t.Context(), "b"); err != nil || got.Ended.IsZero() == want.Closed && want.Unfinished == 0 || want != func() Batch { got.Ended = time.Time{}; return got }() {
				t.Errorf("status %+v, %v; want %+v", got, err, want)
			}
		}
		if _, err := c.Batch(t.Context(), "b"); !errors.Is(err, asynqdb.ErrNoBatch) {
			t.Errorf("no batch: %v", err)
		}
		if _, err := c.WaitBatch(t.Context(), "b", nil); !errors.Is(err, asynqdb.ErrNoBatch) {
			t.Errorf("wait for no batch: %v", err)
		}
		if err := c.CloseBatch(t.Context(), "b"); !errors.Is(err, asynqdb.ErrNoBatch) {
			t.Errorf("close no batch: %v", err)
		}
		for _, r := range c.EnqueueAll(t.Context(), task("1"), task("2")) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		want(Batch{Jobs: 2, Unfinished: 2})
		must(t, c.CloseBatch(t.Context(), "b"))
		want(Batch{Jobs: 2, Unfinished: 2, Closed: true})
		closed, err := c.db.Batch(t.Context(), "b")
		must(t, err)
		_, err = c.Enqueue(task("3"))
		must(t, err)
		want(Batch{Jobs: 3, Unfinished: 3})
		for _, id := range []string{"1", "2", "3"} {
			must(t, tasks.DeleteTask("default", id))
		}
		b, err := c.db.Batch(t.Context(), "b")
		must(t, errors.Join(err, c.db.ReconcileBatch(t.Context(), b), c.finishBatch(t.Context(), b)))
		if ended, err := c.db.EndBatch(t.Context(), closed); ended || err != nil {
			t.Errorf("a batch that was opened again: ended %t, %v", ended, err)
		}
		want(Batch{Jobs: 3, Deleted: 3})
		if _, err := c.Enqueue(task("3")); !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("the ID of a job that has ended: %v", err)
		}
		must(t, c.CloseBatch(t.Context(), "b"))
		want(Batch{Jobs: 3, Deleted: 3, Closed: true})
		for _, opts := range [][]asynq.Option{{InBatch("no name")}, {InBatch("g"), asynq.Group("g")}} {
			_, err := c.Enqueue(asynq.NewTask("job", nil), opts...)
			if wrong, ok := errors.AsType[*throttle.FieldError](err); !ok || wrong.Field != "batch" {
				t.Errorf("%v: %v", opts, err)
			}
		}
	})
}

// TestBatch_Deleted: the servers find the jobs that others have ended, without a wait.
func TestBatch_Deleted(t *testing.T) {
	virtual(t, batchSettings(), func(t *testing.T, st *stack) {
		c := NewClient(st.rdb)
		addBatch(t, c, "b")
		time.Sleep(15 * time.Second)
		b, err := c.Batch(t.Context(), "b")
		if err != nil || b.Completed != 5 || b.Failed != 1 || b.Deleted != 1 || b.Unfinished != 2 {
			t.Errorf("at first %+v, %v", b, err)
		}
		st.must(st.tasks.DeleteTask("default", "b-0007"))
		st.must(st.tasks.ArchiveTask("other", "b-0008"))
		time.Sleep(2 * time.Minute)
		b, err = c.Batch(t.Context(), "b")
		if err != nil || b.Failed != 2 || b.Deleted != 2 || b.Ended.IsZero() || !strings.HasPrefix(st.ran()[len(st.ran())-1].id, "batch/b/") {
			t.Errorf("at last %+v, %v", b, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBatch_FromJob: the jobs that a job of a batch enqueues join the batch although it is closed. A
// copied header puts no job into the batch.
func TestBatch_FromJob(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		c := NewClient(rdb)
		s := batchSettings()
		s.handle = func(ctx context.Context, task *asynq.Task) error {
			depth := string(task.Payload())
			if depth == "xxx" {
				return nil
			}
			_, copied := c.EnqueueContext(ctx, asynq.NewTaskWithHeaders("job", []byte("xxx"), task.Headers()))
			_, err := c.EnqueueContext(ctx, asynq.NewTask("job", []byte(depth+"x"), asynq.Queue("other")), InBatch(""))
			return errors.Join(copied, err)
		}
		st := start(t, rdb, s)
		_, err := c.Enqueue(asynq.NewTask("job", []byte("")), InBatch("b"))
		st.must(err)
		st.must(c.CloseBatch(t.Context(), "b"))
		if status, err := c.WaitBatch(t.Context(), "b", nil); err != nil || status.Completed != 4 || status.Jobs != 4 {
			t.Errorf("status %+v, %v; want 4 completed jobs", status, err)
		}
	})
}

// TestBatch_LostAnswer: the reply to each script that enqueues or ends a job gets lost.
func TestBatch_LostAnswer(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		options := *rdb.(*redis.Client).Options()
		client := redis.NewClient(&options)
		t.Cleanup(func() { _ = client.Close() })
		var repeats atomic.Int32
		client.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			text := fmt.Sprint(cmd.Args()...)
			if (cmd.Name() == "eval" || cmd.Name() == "evalsha") && strings.Contains(text, asynqdb.Batches) && err == nil {
				repeats.Add(1)
				err = next(ctx, cmd)
			}
			return err
		}))
		st := start(t, client, batchSettings())
		c := NewClient(client)
		addBatch(t, NewClient(rdb), "b")
		st.must(st.tasks.DeleteTask("default", "b-0007"))
		st.must(st.tasks.DeleteTask("other", "b-0008"))
		status, err := c.WaitBatch(t.Context(), "b", nil)
		st.must(err)
		if status.Completed != 5 || status.Failed != 1 || status.Deleted != 3 || repeats.Load() < 7 {
			t.Errorf("status %+v after %d repeats", status, repeats.Load())
		}
	})
}

// TestBatch_Kill kills the process at one command after the other, while a batch of two queues ends and
// its follow-up is enqueued. Another process goes on. Each job counts once, and the follow-up runs once.
func TestBatch_Kill(t *testing.T) {
	for n := 1; ; n++ {
		blown := false
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var seen atomic.Int32
			s := batchSettings()
			s.fuse = newFuse(func(cmd redis.Cmder) bool {
				text := fmt.Sprint(cmd.Args()...)
				return strings.Contains(text, "headgate_batch") && seen.Add(1) == int32(n)
			})
			virtual(t, s, func(t *testing.T, st *stack) {
				other := st.beside(batchSettings())
				c := NewClient(other.rdb)
				addBatch(t, c, "b")
				time.Sleep(5 * time.Minute)
				status, err := c.Batch(t.Context(), "b")
				if err != nil || status.Jobs != 9 || status.Completed != 7 || status.Failed != 1 || status.Deleted != 1 || status.Ended.IsZero() {
					t.Errorf("status %+v, %v", status, err)
				}
				follow := 0
				for _, r := range append(st.ran(), other.ran()...) {
					if strings.HasPrefix(r.id, "batch/b/") {
						follow++
					}
				}
				if follow != 1 {
					t.Errorf("the follow-up ran %d times", follow)
				}
				blown = s.fuse.dead()
			})
		})
		if !blown || t.Failed() {
			t.Logf("%d commands", n-1)
			return
		}
	}
}

// TestBatch_LostKeys: if Redis loses a batch, its jobs run, and a wait ends with an error.
func TestBatch_LostKeys(t *testing.T) {
	for key, want := range map[string]error{"asynq:headgate_batch:{b}": asynqdb.ErrNoBatch, asynqdb.Key("default", asynqdb.Batches) + "b": asynqdb.ErrBatchLost, "asynq:headgate_batches": nil} {
		t.Run(key, func(t *testing.T) {
			virtual(t, batchSettings(), func(t *testing.T, st *stack) {
				c := NewClient(st.rdb)
				addBatch(t, c, "b")
				if n := st.rdb.Del(t.Context(), key).Val(); n != 1 {
					t.Fatalf("there is no key %s", key)
				}
				time.Sleep(5 * time.Minute)
				if _, err := c.WaitBatch(t.Context(), "b", nil); !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
				for _, queue := range []string{"default", "other"} {
					q, err := st.tasks.GetQueueInfo(queue)
					if err != nil || q.Pending+q.Active+q.Scheduled+q.Retry > 0 {
						t.Errorf("%+v, %v", q, err)
					}
				}
			})
		})
	}
}

// TestBatch_ManyKills: four of five processes die amid the jobs of a batch. Each job counts once.
func TestBatch_ManyKills(t *testing.T) {
	s := settings{config: quick, rule: always(Rule{}), handle: func(ctx context.Context, _ *asynq.Task) error {
		time.Sleep(10 * time.Millisecond)
		if id, _ := asynq.GetTaskID(ctx); strings.HasSuffix(id, "7") {
			return asynq.SkipRetry
		}
		return nil
	}}
	virtual(t, s, func(t *testing.T, st *stack) {
		stacks, fuses := []*stack{st}, []*fuse{}
		for i := range 4 {
			ends, mortal := atomic.Int32{}, s
			mortal.fuse = newFuse(func(cmd redis.Cmder) bool {
				return strings.Contains(fmt.Sprint(cmd.Args()...), asynqdb.Key("default", asynqdb.Batches)+"b") && ends.Add(1) == int32(20+30*i)
			})
			stacks, fuses = append(stacks, st.beside(mortal)), append(fuses, mortal.fuse)
		}
		c := NewClient(st.rdb)
		st.must(c.OpenBatch(t.Context(), "b", asynq.NewTask("job", nil)))
		var tasks []*asynq.Task
		for i := range 1000 {
			tasks = append(tasks, NewTask("job", nil, numbered("job", i), InBatch("b")))
		}
		for _, r := range c.EnqueueAll(t.Context(), tasks...) {
			st.must(r.Err)
		}
		st.must(c.CloseBatch(t.Context(), "b"))
		status, err := c.WaitBatch(t.Context(), "b", nil)
		if err != nil || status.Jobs != 1000 || status.Completed != 900 || status.Failed != 100 {
			t.Errorf("status %+v, %v", status, err)
		}
		time.Sleep(3 * time.Minute)
		follow := 0
		for _, st := range stacks {
			for _, r := range st.ran() {
				if strings.HasPrefix(r.id, "batch/b/") {
					follow++
				}
			}
		}
		if follow != 1 {
			t.Errorf("the follow-up ran %d times", follow)
		}
		for i, f := range fuses {
			if !f.dead() {
				t.Errorf("process %d did not die", i)
			}
		}
	})
}
