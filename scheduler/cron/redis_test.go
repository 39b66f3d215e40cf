package cron

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// recorder is an asynq client that records the jobs that it has enqueued.
type recorder struct {
	*asynq.Client
	added chan<- string
}

func (r recorder) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	info, err := r.Client.EnqueueContext(ctx, task, opts...)
	if err == nil {
		r.added <- info.ID
	}
	return info, err
}

// TestThreeRunnersOnACluster: three replicas run the entries, and one of them is replaced. Each tick is
// enqueued once, one for each second.
func TestThreeRunnersOnACluster(t *testing.T) {
	cluster := redistest.RunCluster(t)
	var entries []Entry
	for i := range 6 {
		entries = append(entries, Entry{Name: fmt.Sprint("each-", i), Cron: "@every 1s", Type: "test:tick", Missed: MissedAll})
	}
	added := make(chan string, 1000)
	start := func() (r *Runner, stop func()) {
		rdb := cluster.Client()
		r = New(rdb, recorder{asynq.NewClientFromRedisClient(rdb), added}, Options{Scope: "real"})
		if err := r.Set(entries); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = r.Run(ctx) })
		return r, func() { cancel(); running.Wait(); _ = rdb.Close() }
	}
	r, stop := start()
	_, stopSecond := start()
	_, stopThird := start()
	seconds := map[string][]int64{} // of an entry's ticks
	note := func(id string) {
		o, _ := OriginOf(id)
		seconds[o.Entry] = append(seconds[o.Entry], o.At.Unix())
	}
	for n := range 12 {
		note(<-added)
		if n == 5 {
			stopSecond()
			_, stopSecond = start()
		}
	}
	stopSecond()
	stopThird()
	list, err := r.List(t.Context(), 1)
	if err != nil || len(list) != 6 || list[0].Enqueued == 0 || len(list[0].Next) != 1 {
		t.Errorf("got %+v, %v", list, err)
	}
	stop()
	close(added)
	for id := range added {
		note(id)
	}
	for _, e := range entries {
		ticks := slices.Sorted(slices.Values(seconds[e.Name]))
		for i := range ticks {
			if ticks[i] != ticks[0]+int64(i) {
				t.Fatalf("%s: ticks %v are not one for each second", e.Name, ticks)
			}
		}
		if len(ticks) == 0 {
			t.Errorf("%s: no ticks", e.Name)
		}
	}
}
