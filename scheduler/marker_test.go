package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// waitingServer is a server of some slots whose queue has been empty for a minute. began gets the
// time at which a job's handler begins.
func waitingServer(t *testing.T, slots int, then func(t *testing.T, st *stack, began chan time.Time, looks *tap)) {
	looks := &tap{is: func(cmd redis.Cmder) bool {
		return slices.Contains(cmd.Args(), any(asynqdb.Key("default", asynqdb.Paused)))
	}}
	var began chan time.Time
	s := settings{
		config: asynq.Config{Concurrency: slots}, rule: always(Rule{}), hooks: []redis.Hook{looks.hook()},
		handle: func(_ context.Context, task *asynq.Task) error {
			began <- time.Now()
			if string(task.Payload()) == "long" {
				time.Sleep(10 * time.Second)
			}
			return nil
		},
	}
	virtual(t, s, func(t *testing.T, st *stack) {
		began = make(chan time.Time, 2)
		time.Sleep(time.Minute)
		then(t, st, began, looks)
	})
}

// wantNow enqueues a job by a client that sets a marker, and fails unless the job begins at once.
func (st *stack) wantNow(began chan time.Time) {
	st.t.Helper()
	enqueued := time.Now()
	_, err := NewClient(st.rdb).Enqueue(asynq.NewTask("job", nil))
	st.must(err)
	if late := (<-began).Sub(enqueued); late > time.Millisecond {
		st.t.Errorf("a job began after %s, want it at once", late)
	}
}

// TestMarker_AfterCallEnded: a server fetches a job at once, also if its wait goes on when the
// Redis call that waits for markers ends.
func TestMarker_AfterCallEnded(t *testing.T) {
	waitingServer(t, 10, func(t *testing.T, st *stack, began chan time.Time, _ *tap) {
		add(t, st.rdb, "without a marker") // so that the server looks in between
		<-began
		for range 30 {
			time.Sleep(maxPoll + maxPoll/100)
			st.wantNow(began)
		}
	})
}

// TestMarker_PollsBetween: if markers announce all jobs, a server looks at once, also if it has just
// emptied its queue, and not in between. After a job without a marker it looks again soon.
func TestMarker_PollsBetween(t *testing.T) {
	waitingServer(t, 10, func(t *testing.T, st *stack, began chan time.Time, looks *tap) {
		looks.n.Store(0)
		for i := range 20 {
			st.wantNow(began)
			time.Sleep([]time.Duration{minPoll / 3, 40 * time.Millisecond}[i%2])
		}
		if n := looks.n.Load(); n > 22 {
			t.Errorf("%d looks for 20 jobs that markers announced", n)
		}
		add(t, st.rdb, "without a marker")
		<-began
		asked := time.Now()
		add(t, st.rdb, "another")
		if late := (<-began).Sub(asked); late > 2*minPoll {
			t.Errorf("a job after one without a marker began after %s", late)
		}
	})
}

// TestMarker_OneForManyJobs: two servers of one slot wait. Two jobs become pending with one marker:
// the server that wakes leaves a marker for the other.
func TestMarker_OneForManyJobs(t *testing.T) {
	waitingServer(t, 1, func(t *testing.T, st *stack, began chan time.Time, _ *tap) {
		st.beside(settings{config: asynq.Config{Concurrency: 1}, rule: always(Rule{}), handle: st.handle})
		time.Sleep(time.Minute)
		enqueued := time.Now()
		st.enqueueN(2, "long")
		setMarker(t.Context(), st.rdb, markerKey("default"))
		for range 2 {
			if late := (<-began).Sub(enqueued); late > minPoll {
				t.Errorf("a job began after %s, want it at once", late)
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestMarker_ServerWithoutSlot: a marker that comes to a server without a free slot wakes another
// server.
func TestMarker_ServerWithoutSlot(t *testing.T) {
	waitingServer(t, 1, func(t *testing.T, st *stack, began chan time.Time, _ *tap) {
		st.beside(settings{config: asynq.Config{Concurrency: 1}, rule: always(Rule{}), handle: st.handle})
		time.Sleep(time.Minute)
		st.enqueueN(1, "long") // without a marker: the server that finds it still waits for one
		<-began
		st.wantNow(began)
		time.Sleep(time.Minute)
	})
}

// TestMarker_OfSeveralQueues: in a Cluster, markers of other queues come while a server fetches from
// one. It fetches from these queues next. If it has no free slot, it sets the markers again.
func TestMarker_OfSeveralQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		b := newMarkerWaiter(rdb, []string{"a", "b", "c"}, maxPoll)
		defer b.stop()
		b.waits = nil
		for _, queue := range []string{"a", "b", "c"} {
			b.waits = append(b.waits, &markerWait{keys: []string{markerKey(queue)}})
		}
		mark := func(queue string) {
			setMarker(t.Context(), rdb, markerKey(queue))
			synctest.Wait()
		}
		taken := func() string {
			queue, _ := b.take("a", "b", "c")
			return queue
		}
		waitForMarked := func(queue string) {
			time.AfterFunc(maxPoll/2, func() { setMarker(t.Context(), rdb, markerKey(queue)) })
			for b.wait(); !b.woken; b.wait() {
			}
		}
		taken()
		waitForMarked("b")
		mark("c")
		mark("a")
		if got := taken() + taken() + taken() + taken(); got != "bca" {
			t.Errorf("fetched from %q, want the order of the markers", got)
		}
		waitForMarked("a")
		mark("b")
		b.afterFetch(true, true)
		mark("c")
		if n := rdb.Exists(t.Context(), markerKey("a"), markerKey("b"), markerKey("c")).Val(); n != 3 || taken() != "" {
			t.Errorf("%d of 3 markers are set again", n)
		}
	})
}

// TestMarker_PausesAfterErrors: a server whose Redis rejects each fetch at once, as for a missing
// right, does not fetch again at once.
func TestMarker_PausesAfterErrors(t *testing.T) {
	rejects, calls := false, 0
	hook := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !rejects || !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if calls++; calls > 1000 {
			time.Sleep(time.Second) // so that time passes although the server does not pause
		}
		err := errors.New("NOPERM this user has no permissions to run the 'evalsha' command")
		cmd.SetErr(err)
		return err
	})
	virtual(t, settings{config: asynq.Config{Concurrency: 10}, hooks: []redis.Hook{hook}}, func(t *testing.T, _ *stack) {
		rejects = true
		time.Sleep(10 * time.Second)
		rejects = false
		if calls > 300 {
			t.Errorf("%d calls in 10 s", calls)
		}
	})
}
