package scheduler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// busyQueues is a queue with 30 free workers, and queues whose five workers each are busy. All
// share a limit of 20/s.
type busyQueues struct {
	limit  throttle.Limit
	busy   int           // queues
	takes  time.Duration // a job of theirs
	plain  int           // jobs that need no limit, beside theirs
	strict bool          // the servers of busy queues serve the free one, too, and it comes last
	killed bool          // a server of the free queue is killed
	free   float64       // of the permits, what the free queue has at least
}

// Queues whose workers are all busy with long jobs share a limit with a queue that has 30
// free workers: the permits are used, and the free queue gets what the busy ones cannot take.
func TestBusyQueues_LeavePermits(t *testing.T) {
	slow(t)
	log := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(20)}
	for name, row := range map[string]busyQueues{
		"sliding log": {limit: log, busy: 4, takes: 3 * time.Second, free: 0.6},
		"one queue":   {limit: funnel("api", 20, 1), busy: 1, takes: 3 * time.Second, free: 0.85},
		"long jobs":   {limit: funnel("api", 20, 1), busy: 4, takes: 10 * time.Second, free: 0.85},
		"plain jobs":  {limit: funnel("api", 20, 1), busy: 2, takes: 3 * time.Second, plain: 200, free: 0.95},
		"strict":      {limit: funnel("api", 20, 1), busy: 1, takes: 3 * time.Second, strict: true, free: 0.85},
		"killed":      {limit: funnel("api", 20, 1), busy: 4, takes: 3 * time.Second, killed: true, free: 0.6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, row.run)
		})
	}
}

func (b busyQueues) run(t *testing.T) {
	t.Cleanup(func() { time.Sleep(b.takes) }) // jobs that outlast the shutdown
	m, _ := redistest.Mini(t)
	var all []*stack
	worker := func(rdb redis.UniversalClient, workers int, queues map[string]int) *stack {
		st := start(t, rdb, settings{
			config: asynq.Config{Concurrency: workers, Queues: queues, StrictPriority: b.strict},
			limits: []throttle.Limit{b.limit},
			rule: func(task *asynq.Task) (Rule, error) {
				if string(task.Payload()) == "plain" {
					return Rule{}, nil
				}
				return Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
			},
			handle: func(ctx context.Context, _ *asynq.Task) error {
				if queue, _ := asynq.GetQueueName(ctx); queue != "free" {
					time.Sleep(b.takes)
				}
				return nil
			},
		})
		all = append(all, st)
		return st
	}
	first := worker(redistest.MiniClient(t, m), 30, map[string]int{"free": 1})
	for i := range 600 {
		first.enqueue(needing(""), numbered("free", i), asynq.Queue("free"))
	}
	for q := range b.busy {
		queue := fmt.Sprint("busy", q)
		queues := map[string]int{queue: 2}
		if b.strict {
			queues["free"] = 1
		}
		for i := range b.plain {
			first.enqueue(asynq.NewTask("job", []byte("plain")), numbered("plain"+queue, i), asynq.Queue(queue))
		}
		worker(redistest.MiniClient(t, m), 5, queues)
		for i := range 100 {
			first.enqueue(needing(""), numbered(queue, i), asynq.Queue(queue))
		}
	}
	var f *fuse
	if b.killed {
		f = newFuse(func(redis.Cmder) bool { return false })
		rdb := redistest.MiniClient(t, m)
		rdb.AddHook(f)
		worker(rdb, 30, map[string]int{"free": 1, "busy0": 1})
		t.Cleanup(func() { close(f.released) }) // before the servers are shut down
	}
	time.Sleep(5 * time.Second) // until they are busy
	if b.killed {
		f.kill()
		time.Sleep(3 * time.Second) // what that server said of its slots counts for so long
	}
	began := time.Now()
	time.Sleep(20 * time.Second)
	b.judge(t, all, began)
}

func (b busyQueues) judge(t *testing.T, all []*stack, began time.Time) {
	used, free, denials, worst := 0, 0, 0, 0
	for _, st := range all {
		for _, r := range st.ran() {
			if r.at.Before(began) || strings.HasPrefix(r.id, "plain") {
				continue
			}
			used++
			if strings.HasPrefix(r.id, "free") {
				free++
			}
		}
		st.limiter.mu.Lock()
		for _, n := range st.limiter.denials {
			denials += n
			worst = max(worst, n)
		}
		st.limiter.mu.Unlock()
	}
	t.Logf("used %d of 400, the free queue %d, %d denials, most %d", used, free, denials, worst)
	if used < 392 { // 98 %
		t.Errorf("%d permits used of 400, want 392", used)
	}
	if float64(free) < b.free*400-float64(b.busy) {
		t.Errorf("the free queue had %d, want %.0f", free, b.free*400)
	}
	if free == used && b.plain == 0 {
		t.Error("the busy queues had no permit")
	}
}

// A server says how many of its slots are free when it is asked, while it has no jobs.
func TestServer_ReportsFreeSlots(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 7}, limits: []throttle.Limit{funnel("api", 20, 1)}})
		store := st.limiter
		words, again := store.Notifications(t.Context()), time.Tick(100*time.Millisecond)
		for {
			select {
			case <-again: // as the leader does: the server may not have listened yet
				st.must(store.RequestSlots(t.Context(), []string{"other", "default"}))
			case word := <-words:
				if word.Kind != waitdb.SlotsReported || word.Number == 0 { // it has not found its queue empty yet
					continue
				}
				if _, _, queues := word.Slots(); word.Number != 7 || len(queues) != 1 || queues[0] != "default" {
					t.Errorf("%d slots of %v, want 7 of default", word.Number, queues)
				}
				return
			}
		}
	})
}
