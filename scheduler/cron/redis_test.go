package cron

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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

// runOnRedis runs three replicas until they have enqueued that many ticks, and returns the IDs of the
// jobs. One replica is replaced meanwhile.
func runOnRedis(t *testing.T, connect func() redis.UniversalClient, entries []Entry, ticks int) []string {
	t.Helper()
	added := make(chan string, 1000)
	start := func() (stop func()) {
		rdb := connect()
		r := New(rdb, recorder{asynq.NewClientFromRedisClient(rdb), added}, Options{Scope: "real"})
		if err := r.Set(entries); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		return func() {
			cancel()
			running.Wait()
			if err := rdb.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	stops := []func(){start(), start(), start()}
	var ids []string
	for len(ids) < ticks {
		ids = append(ids, <-added)
		if len(ids) == ticks/2 {
			stops[0]()
			stops[0] = start()
		}
	}
	for _, stop := range stops {
		stop()
	}
	close(added)
	for id := range added {
		ids = append(ids, id)
	}
	return ids
}

// checkEverySecond requires one tick of each entry for each second.
func checkEverySecond(t *testing.T, entries []Entry, ids []string) {
	t.Helper()
	for _, e := range entries {
		var seconds []int
		for _, id := range ids {
			if second, ok := strings.CutPrefix(id, "real/"+e.Name+"@"); ok {
				n, err := strconv.Atoi(second)
				if err != nil {
					t.Error(err)
				}
				seconds = append(seconds, n)
			}
		}
		slices.Sort(seconds)
		for i := range seconds {
			if seconds[i] != seconds[0]+i {
				t.Errorf("%s: ticks %v are not one for each second", e.Name, seconds)
				break
			}
		}
		if len(seconds) == 0 {
			t.Errorf("%s: no ticks", e.Name)
		}
	}
}

func everySecond(names int) []Entry {
	var entries []Entry
	for i := range names {
		entries = append(entries, Entry{
			Name: fmt.Sprintf("each-%d", i), Cron: "@every 1s", Type: "test:tick", Missed: MissedAll,
		})
	}
	return entries
}

func TestThreeRunnersOnACluster(t *testing.T) {
	cluster := redistest.RunCluster(t)
	entries := everySecond(6)
	connect := func() redis.UniversalClient { return cluster.Client() }
	checkEverySecond(t, entries, runOnRedis(t, connect, entries, 12))

	rdb := connect()
	defer rdb.Close()
	c := New(rdb, asynq.NewClientFromRedisClient(rdb), Options{Scope: "real"})
	if list, err := c.List(t.Context(), 1); len(list) != 0 || err != nil {
		t.Errorf("without entries: %v, %v", list, err)
	}
	if err := c.Set(entries); err != nil {
		t.Fatal(err)
	}
	list, err := c.List(t.Context(), 1)
	if err != nil || len(list) != 6 || list[0].Enqueued == 0 || list[0].Next[0].Before(time.Unix(1, 0)) {
		t.Errorf("got %+v, %v", list, err)
	}
}
