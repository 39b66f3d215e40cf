package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// Jobs that need a slot or a funnel too have as many turns of a window as jobs that need the
// window alone, although all of its permits come at once.
func TestWindowTurns_AreEqual(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	window := func(kind throttle.Kind) throttle.Limit {
		return throttle.Limit{Name: "api", Kind: kind, Rate: throttle.Rate{N: 50, Per: 5 * time.Second}}
	}
	slots := throttle.Limit{Name: "other", Kind: throttle.Concurrency, Capacity: 2}
	for name, limits := range map[string][]throttle.Limit{
		"window and slots":  {window(throttle.FixedWindow), slots},
		"window and funnel": {window(throttle.FixedWindow), funnel("other", 8, 1)},
		"log and slots":     {window(throttle.SlidingLog), slots},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { equalTurns(t, limits) })
		})
	}
}

func equalTurns(t *testing.T, limits []throttle.Limit) {
	_, rdb := redistest.Mini(t)
	st := start(t, rdb, settings{
		config: asynq.Config{Concurrency: 30, Queues: map[string]int{"both": 1, "alone": 1}},
		limits: limits,
		rule: func(task *asynq.Task) (Rule, error) {
			needs := []throttle.Need{{Limit: "api"}}
			if string(task.Payload()) == "both" {
				needs = append(needs, throttle.Need{Limit: "other"})
			}
			return Rule{Needs: needs}, nil
		},
		handle: func(_ context.Context, task *asynq.Task) error {
			if string(task.Payload()) == "both" {
				time.Sleep(250 * time.Millisecond)
			}
			return nil
		},
	})
	for i := range 400 {
		for _, queue := range []string{"both", "alone"} {
			st.enqueue(asynq.NewTask("job", []byte(queue)), numbered(queue, i), asynq.Queue(queue))
		}
	}
	time.Sleep(25*time.Second - time.Duration(time.Now().UnixNano())%(5*time.Second)) // until a window opens, and the log is even
	began := time.Now()
	time.Sleep(25*time.Second - time.Millisecond)
	both, alone := 0, 0
	for _, r := range st.ran() {
		switch {
		case r.at.Before(began):
		case strings.HasPrefix(r.id, "both"):
			both++
		default:
			alone++
		}
	}
	t.Logf("%d and %d turns", both, alone)
	if both < 107 || alone < 107 || both+alone < 245 {
		t.Errorf("%d and %d turns of 250, want 107 at least", both, alone)
	}
	time.Sleep(time.Second) // until the handlers have returned
}
