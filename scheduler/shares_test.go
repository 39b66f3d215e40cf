package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestQueues_TurnsByWeight: at a limit that both need, six to one; and the more
// important alone where priority is strict.
func TestQueues_TurnsByWeight(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, strict := range []bool{false, true} {
		config := asynq.Config{Concurrency: 10, Queues: map[string]int{"critical": 6, "default": 1}, StrictPriority: strict}
		limits := []throttle.Limit{funnel("a", 20, 5)}
		virtual(t, settings{config: config, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
			for i := range 300 {
				st.enqueue(needing("a"), numbered("default", i), asynq.Queue("default"))
				st.enqueue(needing("a"), numbered("critical", i), asynq.Queue("critical"))
			}
			time.Sleep(2 * time.Second) // by then all wait
			turns, before := map[string]int{}, len(st.ran())
			time.Sleep(7 * time.Second)
			for _, r := range st.ran()[before:] {
				turns[strings.Split(r.id, "-")[0]]++
			}
			want := map[string]int{"critical": 120, "default": 20}
			if strict {
				want = map[string]int{"critical": 140, "default": 0}
			}
			for queue, n := range want {
				if turns[queue] < n-2 || turns[queue] > n+2 {
					t.Errorf("strict %v: %v, want %v", strict, turns, want)
				}
			}
		})
	}
}
