package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// hourly returns an entry for tests. The clock of a synctest bubble starts at midnight of
// 1 January 2000 in UTC.
func hourly(change func(*Entry)) Entry {
	e := Entry{Name: "sweep", Cron: "0 * * * *", Type: "sweep:all"}
	if change != nil {
		change(&e)
	}
	return e
}

func sweepIDs(hours ...int) []string {
	var ids []string
	for _, hour := range hours {
		at := time.Date(2000, 1, 1, hour, 0, 0, 0, time.UTC)
		ids = append(ids, fmt.Sprintf("sweep@%d", at.Unix()))
	}
	return ids
}

func checkIDs(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}

// until sleeps until a moment of the bubble's first days.
func until(hour, minute int) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC)))
}

func TestOverlapSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		entries := []Entry{hourly(func(e *Entry) { e.Overlap = OverlapSkip })}
		r := startReplica(t, m, client, entries, nil)
		until(2, 30) // the job of 1:00 waits, so that of 2:00 is skipped
		list, err := r.List(t.Context(), 1)
		if err != nil || list[0].Outcome != "skipped: still running" || list[0].Skipped != 1 {
			t.Errorf("after the second tick: %+v, %v", list, err)
		}
		if err := inspector.ArchiveTask("default", sweepIDs(1)[0]); err != nil {
			t.Fatal(err)
		}
		until(3, 30) // the job of 1:00 has ended, so that of 3:00 is added
		id, err := r.Trigger(t.Context(), "sweep")
		if err != nil {
			t.Fatal(err)
		}
		// The job of 3:00, or the triggered one, blocks those that follow.
		until(4, 30)
		if err := inspector.DeleteTask("default", sweepIDs(3)[0]); err != nil {
			t.Fatal(err)
		}
		until(5, 30)
		if list, err = r.List(t.Context(), 1); err != nil || list[0].Skipped != 3 || list[0].Enqueued != 2 {
			t.Errorf("after five ticks: %+v, %v", list, err)
		}
		tasks, err := inspector.ListPendingTasks("default")
		if err != nil || len(tasks) != 1 || tasks[0].ID != id {
			t.Errorf("pending: %v, %v; want only %s", tasks, err, id)
		}
		if err := inspector.DeleteTask("default", id); err != nil {
			t.Fatal(err)
		}
		until(6, 30)
		r.end()
		if list, err = r.List(t.Context(), 1); err != nil || list[0].Skipped != 3 || list[0].Enqueued != 3 {
			t.Errorf("at the end: %+v, %v", list, err)
		}
	})
}

func TestDelay_CoversJitter(t *testing.T) {
	item := Entry{Name: "sweep", Jitter: 10 * time.Second}
	seen := map[time.Duration]int{}
	for i := range 2000 {
		delay := item.delay(fmt.Sprintf("sweep@%d", i*3600))
		seen[delay]++
	}
	for second := range 11 {
		if n := seen[time.Duration(second)*time.Second]; n < 100 {
			t.Errorf("%d of 2000 ticks have a delay of %d s", n, second)
		}
		delete(seen, time.Duration(second)*time.Second)
	}
	if len(seen) > 0 {
		t.Errorf("delays beyond the jitter: %v", seen)
	}
}

func TestJobOptions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Entry)
		want   string
	}{
		{"plain", nil, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		{"own", func(e *Entry) {
			e.Queue = "low"
			e.Options = []asynq.Option{asynq.MaxRetry(3), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)}
		}, `[MaxRetry(3) Timeout(1m0s) TaskID("sweep@946688400") Queue("low") Retention(1h0m0s)]`},
		{"short retention", func(e *Entry) {
			e.Options = []asynq.Option{asynq.Retention(time.Second)}
		}, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		{
			"jitter", func(e *Entry) { e.Jitter = time.Hour },
			`[TaskID("sweep@946688400") Queue("default") Retention(5m0s) ProcessIn(47m35s)]`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := newJobQueue()
				r := startReplica(t, m, q, []Entry{hourly(tc.change)}, nil)
				until(1, 30)
				r.end()
				if got := fmt.Sprint(q.opts); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestListAndTrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := newReplica(t, m, q, []Entry{
			hourly(func(e *Entry) { e.Zone = "Asia/Kathmandu" }),
			{Name: "off", Cron: "@daily", Type: "x", Disabled: true},
		}, nil)
		list, err := r.List(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			got = append(got, s.Entry.Name)
			for _, next := range s.Next {
				got = append(got, next.Format("15:04 -0700"))
			}
		}
		if diff := cmp.Diff([]string{"off", "sweep", "06:00 +0545", "07:00 +0545"}, got); diff != "" {
			t.Error(diff)
		}
		id, err := r.Trigger(t.Context(), "sweep")
		if err != nil {
			t.Fatal(err)
		}
		checkIDs(t, q.ids(), []string{id})
		_, err = r.Trigger(t.Context(), "swep")
		for _, err := range []error{err, r.Pause(t.Context(), "swep"), r.Resume(t.Context(), "swep")} {
			if !errors.Is(err, ErrNoSchedule) || !strings.Contains(err.Error(), `"swep"`) {
				t.Errorf("got %v, want ErrNoSchedule with the name", err)
			}
		}
	})
}

// TestRun_Scopes_ShareNothing runs two programs on one Redis and one queue, with an entry of the same
// name.
func TestRun_Scopes_ShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		var replicas []*replica
		for _, scope := range []string{"", "default", "billing", "audit"} {
			replicas = append(replicas, startReplica(t, m, q, []Entry{hourly(nil)}, func(r *replica) { r.scope = scope }))
		}
		until(2, 30)
		if err := replicas[2].Pause(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		until(3, 30)
		for _, r := range replicas {
			r.end()
		}
		plain := sweepIDs(1, 2, 3)
		want := slices.Concat(plain, []string{
			"audit/" + plain[0], "audit/" + plain[1], "audit/" + plain[2], "billing/" + plain[0], "billing/" + plain[1],
		})
		checkIDs(t, slices.Sorted(slices.Values(q.ids())), slices.Sorted(slices.Values(want)))
	})
}
