package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// busyQueues is a queue with 30 free workers, and queues whose few workers each are busy. All
// share a limit of 20/s.
type busyQueues struct {
	limit  throttle.Limit
	busy   int           // queues
	few    int           // workers of each; 0 means five
	takes  time.Duration // a job of theirs
	plain  int           // jobs that need no limit, beside theirs
	strict bool          // the servers of busy queues serve the free one too, and it comes last
	killed bool          // a server of the free queue is killed
	free   float64       // least part of the permits that the free queue has
}

// TestBusyQueues_LeavePermits: all permits are used, and the free queue gets what the busy queues
// cannot take.
func TestBusyQueues_LeavePermits(t *testing.T) {
	slow(t)
	log := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(20)}
	for name, row := range map[string]busyQueues{
		"sliding log": {limit: log, busy: 4, takes: 3 * time.Second, free: 0.6},
		"one queue":   {limit: funnel("api", 20, 1), busy: 1, takes: 3 * time.Second, free: 0.85},
		"short jobs":  {limit: funnel("api", 20, 1), busy: 1, few: 2, takes: 381 * time.Millisecond, free: 0.7},
		"long jobs":   {limit: funnel("api", 20, 1), busy: 4, takes: 10 * time.Second, free: 0.85},
		"plain jobs":  {limit: funnel("api", 20, 1), busy: 2, takes: 3 * time.Second, plain: 200, free: 0.95},
		"strict":      {limit: funnel("api", 20, 1), busy: 1, takes: 3 * time.Second, strict: true, free: 0.85},
		"killed":      {limit: funnel("api", 20, 1), busy: 4, takes: 3 * time.Second, killed: true, free: 0.6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			virtual(t, row.worker(30, map[string]int{"free": 1}), row.run)
		})
	}
}

func (b busyQueues) worker(workers int, queues map[string]int) settings {
	return settings{
		config: asynq.Config{Concurrency: workers, Queues: queues, StrictPriority: b.strict},
		limits: []throttle.Limit{b.limit}, rule: ruleOfPayload,
		handle: func(ctx context.Context, _ *asynq.Task) error {
			if queue, _ := asynq.GetQueueName(ctx); queue != "free" {
				time.Sleep(b.takes)
			}
			return nil
		},
	}
}

func (b busyQueues) run(t *testing.T, first *stack) {
	t.Cleanup(func() { time.Sleep(b.takes) }) // jobs that outlast the shutdown
	measured := max(5*time.Second, b.takes)
	permits := 20 * measured.Seconds()
	for i := range 300 {
		first.enqueue(needing("api"), numbered("free", i), asynq.Queue("free"))
	}
	all := []*stack{first}
	for q := range b.busy {
		queue := fmt.Sprint("busy", q)
		queues := map[string]int{queue: 2}
		if b.strict {
			queues["free"] = 1
		}
		for i := range b.plain {
			first.enqueue(needing(""), numbered("plain"+queue, i), asynq.Queue(queue))
		}
		all = append(all, first.beside(b.worker(cmp.Or(b.few, 5), queues)))
		for i := range 60 {
			first.enqueue(needing("api"), numbered(queue, i), asynq.Queue(queue))
		}
	}
	if b.killed {
		dies := b.worker(30, map[string]int{"free": 1, "busy0": 1})
		dies.fuse = newFuse(nil)
		all = append(all, first.beside(dies))
		time.Sleep(5 * time.Second) // until the others are busy
		dies.fuse.kill()
		time.Sleep(3 * time.Second) // its last report of free slots counts for so long
	} else {
		time.Sleep(5 * time.Second)
	}
	began := time.Now()
	time.Sleep(measured)
	used, free := 0, 0
	for _, st := range all {
		for _, r := range st.ran() {
			if !r.at.Before(began) && len(r.needs) > 0 {
				used++
				if strings.HasPrefix(r.id, "free") {
					free++
				}
			}
		}
	}
	if float64(used) < 0.98*permits {
		t.Errorf("%d permits used of %.0f, want 98 %%", used, permits)
	}
	if want := b.free*permits - float64(b.busy); float64(free) < want || free == used && b.plain == 0 {
		t.Errorf("the free queue had %d of %d, want %.0f, and the busy queues some", free, used, want)
	}
}
