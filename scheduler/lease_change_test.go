package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestLease_LimitChanges: the limit of a job's slot changes while the job runs. The job keeps its slot
// until it ends, and the next job begins then.
func TestLease_LimitChanges(t *testing.T) {
	slow(t)
	ctx := context.Background()
	shorter := oneSlot
	shorter.Lease = time.Second
	for name, change := range map[string]func(st *stack){
		"shorter": func(st *stack) { st.must(st.limiter.Set(ctx, shorter)) },
		"longer, then shorter": func(st *stack) {
			longer := oneSlot
			longer.Lease = time.Hour
			st.must(st.limiter.Set(ctx, longer))
			time.Sleep(15 * time.Second)
			st.must(st.limiter.Set(ctx, shorter))
		},
		"deleted and set again": func(st *stack) {
			st.must(st.limiter.Delete(ctx, oneSlot.Name))
			time.Sleep(45 * time.Second)
			st.must(st.limiter.Set(ctx, shorter))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var running, most, canceled atomic.Int32
			handle := func(ctx context.Context, _ *asynq.Task) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				select {
				case <-ctx.Done():
					canceled.Add(1)
				case <-time.After(2 * time.Minute):
				}
				return nil
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, handle: handle}, func(t *testing.T, st *stack) {
				st.enqueueN(1, "")
				time.Sleep(3 * time.Second)
				change(st)
				st.enqueueN(1, "")
				time.Sleep(5 * time.Minute)
				st.wantOnce(2)
				if most.Load() != 1 || canceled.Load() != 0 {
					t.Errorf("%d jobs ran at once, and %d were canceled", most.Load(), canceled.Load())
				}
			})
		})
	}
}
