package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// turnsOf counts the runs since a time by the first part of their IDs.
func (st *stack) turnsOf(since time.Time) map[string]int {
	turns := map[string]int{}
	for _, r := range st.ran() {
		if r.at.After(since) {
			kind, _, _ := strings.Cut(r.id, "-")
			turns[kind]++
		}
	}
	return turns
}

// TestTurns_OverlappingLimits: jobs that need two limits have as many turns as jobs that need one
// of them.
func TestTurns_OverlappingLimits(t *testing.T) {
	t.Parallel()
	for _, rates := range []struct{ a, b, seconds int }{{10, 3, 20}, {20, 1, 15}} {
		t.Run(fmt.Sprintf("a %d per s, b %d per s", rates.a, rates.b), func(t *testing.T) {
			limits := []throttle.Limit{funnel("a", rates.a, 10), funnel("b", rates.b, 10)}
			virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
				for i := range rates.seconds*rates.a + 10 {
					st.enqueue(needing("a"), numbered("a", i))
					if i < rates.seconds*rates.b+10 {
						st.enqueue(needing("b"), numbered("b", i))
						st.enqueue(needing("a b"), numbered("ab", i))
					}
				}
				all := time.Now().Add(time.Second) // by then all wait
				time.Sleep(time.Duration(rates.seconds) * time.Second)
				turns := st.turnsOf(all)
				for lane, rate := range map[string]int{"a": rates.a, "b": rates.b, "ab": min(rates.a, rates.b)} {
					if want := 0.8 * float64((rates.seconds-1)*rate) / 2; float64(turns[lane]) < want {
						t.Errorf("lane %s had %d turns, want %.0f: 0.8 of an equal share", lane, turns[lane], want)
					}
				}
			})
		})
	}
}

// TestTurns_PausedQueue: a paused queue takes no turns from another one.
func TestTurns_PausedQueue(t *testing.T) {
	config := eager
	config.Queues = map[string]int{"default": 1, "other": 1}
	virtual(t, settings{config: config, limits: []throttle.Limit{funnel("api", 50, 10)}}, func(_ *testing.T, st *stack) {
		st.enqueueN(60, "", asynq.Queue("other"))
		time.Sleep(300 * time.Millisecond) // those that wait are denied
		st.must(st.tasks.PauseQueue("other"))
		time.Sleep(10 * time.Second)
		began, done := time.Now(), len(st.ran())
		st.enqueueN(50, "")
		time.Sleep(10 * time.Second)
		st.wantLastBy(began, done+50, 1100*time.Millisecond)
		st.must(st.tasks.UnpauseQueue("other"))
		time.Sleep(10 * time.Second)
		st.wantOnceEach(110)
		st.wantClean()
	})
}

// TestTurns_QueueWeights: at a limit that two queues need, turns follow their weights, and so they do
// between the fairness keys of a queue. A strict queue goes first.
func TestTurns_QueueWeights(t *testing.T) {
	slow(t)
	weights := map[string]int{"critical": 6, "default": 1}
	for name, row := range map[string]struct {
		strict, fair bool
		want         map[string]int
	}{
		"weighted": {want: map[string]int{"critical": 120, "default": 20}},
		"strict":   {strict: true, want: map[string]int{"critical": 140, "default": 0}},
		"fair":     {fair: true, want: map[string]int{"critical": 120, "default": 20}},
	} {
		rule := func(task *asynq.Task) (Rule, error) {
			r := needs("a")
			if kind := string(task.Payload()); row.fair {
				r.FairnessKey, r.FairnessWeight = kind, weights[kind]
			}
			return r, nil
		}
		config := asynq.Config{Concurrency: 10, Queues: weights, StrictPriority: row.strict}
		virtual(t, settings{config: config, limits: []throttle.Limit{funnel("a", 20, 5)}, rule: rule}, func(t *testing.T, st *stack) {
			for i := range 600 {
				kind := []string{"default", "critical"}[i%2]
				queue := kind
				if row.fair {
					queue = "default"
				}
				st.enqueue(needing(kind), numbered(kind, i), asynq.Queue(queue))
			}
			time.Sleep(2 * time.Second) // by then all wait
			began := time.Now()
			time.Sleep(7 * time.Second)
			turns := st.turnsOf(began)
			for kind, n := range row.want {
				if turns[kind] < n-2 || turns[kind] > n+2 {
					t.Errorf("%s: %v, want %v", name, turns, row.want)
				}
			}
		})
	}
}

// TestTurns_Windows: jobs that need a slot or a funnel too have as many turns of a window as jobs
// that need the window alone, although all of its permits come at once.
func TestTurns_Windows(t *testing.T) {
	slow(t)
	window := func(kind throttle.Kind) throttle.Limit {
		return throttle.Limit{Name: "api", Kind: kind, Rate: throttle.Rate{N: 50, Per: 5 * time.Second}}
	}
	slots := throttle.Limit{Name: "other", Kind: throttle.Concurrency, Capacity: 2}
	for name, row := range map[string]struct {
		window, other throttle.Limit
		least         int
	}{
		"window and slots":  {window(throttle.FixedWindow), slots, 123},
		"window and funnel": {window(throttle.FixedWindow), funnel("other", 8, 1), 123},
		"log and slots":     {window(throttle.SlidingLog), slots, 100}, // 40 % is what docs/design.md promises if slots are scarce
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handle := func(_ context.Context, task *asynq.Task) error {
				if string(task.Payload()) != "api" {
					time.Sleep(250 * time.Millisecond)
				}
				return nil
			}
			config := asynq.Config{Concurrency: 30, Queues: map[string]int{"both": 1, "alone": 1}}
			virtual(t, settings{config: config, limits: []throttle.Limit{row.window, row.other}, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
				for i := range 400 {
					st.enqueue(needing("api other"), numbered("both", i), asynq.Queue("both"))
					st.enqueue(needing("api"), numbered("alone", i), asynq.Queue("alone"))
				}
				time.Sleep(25*time.Second - time.Duration(time.Now().UnixNano())%(5*time.Second)) // until a window opens, and the log is even
				began := time.Now()
				time.Sleep(25*time.Second - time.Millisecond)
				turns := st.turnsOf(began.Add(-1))
				if both, alone := turns["both"], turns["alone"]; both < row.least || alone < row.least || both+alone < 245 {
					t.Errorf("%d and %d turns of 250, want %d at least", both, alone, row.least)
				}
				time.Sleep(time.Second) // until the handlers have returned
			})
		})
	}
}

// TestTurns_SlowQueueBesideFast: a queue's only worker is slower than its share of a limit, beside
// a queue with a free worker. The slow queue's jobs come in order. The queue gets permits only for
// its free worker, and the other queue gets all other permits. If its server cannot report that the
// worker is free, jobs come late, and take the permits of later ones.
func TestTurns_SlowQueueBesideFast(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		silent     bool
		slow, both int     // jobs that run in 4 s
		mean       float64 // denials of a job
		most       int
	}{
		"server reports":   {false, 16, 77, 1.05, 2}, // a job that is granted before its worker is known to be busy comes late
		"server is silent": {true, 18, 56, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			of := func(queue string, d time.Duration) settings {
				return settings{
					config: asynq.Config{Concurrency: 1, TaskCheckInterval: 20 * time.Millisecond, Queues: map[string]int{queue: 1}},
					limits: []throttle.Limit{funnel("api", 20, 2)}, handle: takes(d),
				}
			}
			s := of("slow", 200*time.Millisecond)
			s.hooks = []redis.Hook{redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if row.silent && cmd.Name() == "publish" && strings.HasPrefix(fmt.Sprint(cmd.Args()[2]), "slots_free") {
					return nil
				}
				return next(ctx, cmd)
			})}
			virtual(t, s, func(t *testing.T, slow *stack) {
				fast := slow.beside(of("fast", 0))
				for i := range 80 {
					slow.enqueue(needing(""), numbered("job", i), asynq.Queue("slow"))
					fast.enqueue(needing(""), numbered("job", i), asynq.Queue("fast"))
				}
				time.Sleep(4 * time.Second)
				if !slices.IsSorted(slow.order()) {
					t.Errorf("the slow queue's jobs ran out of order: %v", slow.order())
				}
				slow.wantDenials(80, row.mean, row.most)
				if n, both := len(slow.ran()), len(slow.ran())+len(fast.ran()); n < row.slow || both < row.both {
					t.Errorf("%d jobs of the slow queue ran of %d, want %d of %d", n, both, row.slow, row.both)
				}
			})
		})
	}
}
