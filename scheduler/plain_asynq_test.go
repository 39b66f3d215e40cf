package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// Jobs of a plain asynq producer, without a retry to spare, are jobs as any
// other: they keep their order, their time, their ID and their Unique lock.
func TestPlainAsynqJobs_NoRetries(t *testing.T) {
	slot := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1, Lease: 30 * time.Second}
	handle := func(context.Context, *asynq.Task) error { time.Sleep(time.Second); return nil }
	quick := asynq.Config{Concurrency: 4, TaskCheckInterval: 20 * time.Millisecond}
	virtual(t, settings{config: quick, limits: []throttle.Limit{slot}, handle: handle}, func(t *testing.T, st *stack) {
		var want []string
		began := time.Now()
		for i := range 20 {
			id := fmt.Sprintf("job-%02d", i)
			st.enqueue(asynq.NewTask("job", []byte(id)), asynq.TaskID(id), asynq.MaxRetry(0), asynq.Unique(2*time.Second), asynq.Retention(time.Hour))
			want = append(want, id)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // longer than the locks, had nobody kept them
		_, err := st.client.Enqueue(asynq.NewTask("job", []byte("job-19")), asynq.Unique(time.Minute))
		if !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second job-19 while the first waits: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(time.Minute)
		st.wantOnceEach(20)
		st.wantClean()
		var got []string
		for _, r := range st.ran() {
			got = append(got, r.id)
		}
		slices.Sort(got[1:5]) // four workers ask for the first slot at once
		if !slices.Equal(got, want) {
			t.Errorf("order:\n got %v\nwant %v", got, want)
		}
		if last := st.ran()[19].at.Sub(began); last > 21*time.Second {
			t.Errorf("the last began after %s, want 19 slots of a second, and little more", last)
		}
		for _, id := range want {
			if info := st.info(id); info == nil || info.State != asynq.TaskStateCompleted || info.MaxRetry != 0 || info.Retried != 0 {
				t.Errorf("%s: %+v, want completed, as it was enqueued", id, info)
			}
		}
		if len(st.reported) != 0 {
			t.Errorf("reported: %v", st.reported)
		}
	})
}

// A waiting job is deleted, and its ID enqueued again for later: that is
// another job, and runs when it says.
func TestDeletedID_AgainLater(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	virtual(t, settings{limits: []throttle.Limit{perMinute(1, 1)}}, func(t *testing.T, st *stack) {
		for i := range 3 {
			st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprint(i)))
		}
		time.Sleep(30 * time.Second)
		var waiting string
		for i := range 3 {
			if info := st.info(fmt.Sprint(i)); info != nil {
				waiting = info.ID
			}
		}
		st.must(st.tasks.DeleteTask("default", waiting))
		again := time.Now()
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(waiting), asynq.ProcessIn(2*time.Hour))
		time.Sleep(time.Hour)
		st.wantOnceEach(2)
		time.Sleep(2 * time.Hour)
		st.wantOnceEach(3)
		if last := st.ran()[2]; last.id != waiting || last.at.Sub(again) < 2*time.Hour-time.Second {
			t.Errorf("%s ran after %s, want %s after 2h", last.id, last.at.Sub(again), waiting)
		}
		st.wantClean()
	})
}

// What asynq's tools show of a waiting job is a retry with the limit's answer.
func TestInspector_WaitingJob(t *testing.T) {
	hourly := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
	virtual(t, settings{limits: []throttle.Limit{hourly}}, func(t *testing.T, st *stack) {
		if d, err := st.limiter.Allow(t.Context(), "api", ""); !d.OK() {
			t.Fatal(d, err)
		}
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
		time.Sleep(time.Minute)
		info := st.info(id)
		if info.State != asynq.TaskStateRetry || info.Retried != 0 || info.MaxRetry != 0 || !strings.HasPrefix(info.LastErr, "denied by api") {
			t.Errorf("job: %+v, want it to wait, denied by api", info)
		}
		if in := time.Until(info.NextProcessAt); in < 50*time.Minute {
			t.Errorf("comes by itself in %s, before its permit exists", in)
		}
	})
}

// TestIDs_Odd: asynq takes almost any ID, and so do the lanes; each job is itself alone.
func TestIDs_Odd(t *testing.T) {
	ids := []string{"a", "b", "a\nb", "a\n", "\nb", "default\na", "a b", "*", "{a}", "a|b", "\r\n\r\nb", "ä"}
	ran := map[throttle.JobID]int{}
	settings := settings{
		config: asynq.Config{Concurrency: 1, Queues: map[string]int{"default": 1, "other": 1}}, limits: []throttle.Limit{perMinute(6, 1)},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			queue, _ := asynq.GetQueueName(ctx)
			ran[throttle.JobID{Queue: queue, ID: id}]++
			return nil
		},
	}
	virtual(t, settings, func(t *testing.T, st *stack) {
		for _, queue := range []string{"default", "other"} {
			for _, id := range ids {
				st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(id), asynq.Queue(queue), asynq.MaxRetry(0))
			}
		}
		time.Sleep(time.Second)
		if jobs, err := st.limiter.Find(t.Context(), "b"); err != nil || len(jobs) != 2 {
			t.Errorf("waiting as b: %v, %v; want one in each queue", jobs, err)
		}
		st.must(st.tasks.DeleteTask("other", "a\n"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		for _, id := range ids {
			for _, queue := range []string{"default", "other"} {
				if times := ran[throttle.JobID{Queue: queue, ID: id}]; times != 1 && (queue != "other" || id != "a\n") {
					t.Errorf("%q in %s ran %d times", id, queue, times)
				}
			}
			if times := st.limiter.denials[id]; times > 2 {
				t.Errorf("the two jobs %q were denied %d times", id, times)
			}
		}
		st.wantClean()
	})
}

// TestQueue_LineBreak is refused by who serves it, and by our client before anything
// of it is in Redis, whoever says so.
func TestQueue_LineBreak(t *testing.T) {
	_, rdb := redistest.Mini(t)
	client, queue := NewClient(rdb), asynq.Queue("a\nb")
	for name, enqueue := range map[string]func() (*asynq.TaskInfo, error){
		"the task": func() (*asynq.TaskInfo, error) { return client.Enqueue(asynq.NewTask("job", nil, queue)) },
		"the call": func() (*asynq.TaskInfo, error) { return client.Enqueue(asynq.NewTask("job", nil), queue) },
		"later": func() (*asynq.TaskInfo, error) {
			return client.Enqueue(asynq.NewTask("job", nil), queue, asynq.ProcessIn(time.Hour), asynq.Unique(time.Hour))
		},
	} {
		if _, err := enqueue(); fmt.Sprint(err) != `queue "a\nb": want a name without line breaks` {
			t.Errorf("%s: %v", name, err)
		}
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("in Redis: %q", keys)
	}
}

// A waiting or called job is deleted, and its ID enqueued again at once: that is another job.
// It stands behind all that wait, and its MaxWait begins anew.
func TestDeletedID_AgainAtOnce(t *testing.T) {
	virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 30 * time.Second}, nil
	}}, func(t *testing.T, st *stack) {
		for i := range 25 {
			st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(fmt.Sprintf("job-%02d", i)))
		}
		time.Sleep(10 * time.Second)
		const again = "job-12"
		st.must(st.tasks.DeleteTask("default", again))
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID(again))
		time.Sleep(time.Minute)
		ran := st.ran()
		if len(ran) != 25 || ran[24].id != again {
			t.Errorf("ran %v, want %s as the last of 25", ran, again)
		}
		// The same once more, with one whose wait would be over by the first one's record.
		st.must(st.limiter.Pause(t.Context(), "api"))
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("late"))
		time.Sleep(25 * time.Second)
		st.must(st.tasks.DeleteTask("default", "late"))
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("late"))
		time.Sleep(25 * time.Second)
		st.must(st.limiter.Resume(t.Context(), "api"))
		time.Sleep(time.Minute)
		if ran := st.ran(); len(ran) != 26 || st.info("late") != nil {
			t.Errorf("%d jobs ran, want 26: the last waited 25 s, and %+v", len(ran), st.info("late"))
		}
		st.wantClean()
	})
}
