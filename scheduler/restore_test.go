package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestRestore_AmongOtherKeys: Redis holds 100,000 keys of others, and loses the retry set. The jobs
// are back within a minute. Two servers together look at the jobs as often as one.
func TestRestore_AmongOtherKeys(t *testing.T) {
	pages, walks := 0, 0
	among := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		scan, ok := cmd.(*redis.ScanCmd)
		if !ok || cmd.Name() != "scan" {
			return next(ctx, cmd)
		}
		time.Sleep(2 * time.Millisecond)
		if pages++; pages%100 != 0 { // a page has 1000 keys
			scan.SetVal(nil, 1)
			return nil
		}
		walks++
		scan.Args()[1] = uint64(0)
		return next(ctx, cmd)
	})
	s := settings{hooks: []redis.Hook{among}, rule: always(Rule{}), handle: returns(RetryAfter(time.Hour))}
	virtual(t, s, func(t *testing.T, st *stack) {
		st.beside(s)
		for range 20 {
			st.enqueue(asynq.NewTask("job", nil))
		}
		retry := asynqdb.Key("default", asynqdb.Retry)
		for range 5 {
			time.Sleep(95 * time.Second)
			st.must(st.rdb.Del(t.Context(), retry).Err())
			time.Sleep(time.Minute)
			if n := st.rdb.ZCard(t.Context(), retry).Val(); n != 20 {
				t.Errorf("a minute after the retry set was lost it has %d jobs, want 20", n)
			}
		}
		if most := int(5*155*time.Second/asynqdb.WalkInterval) + 1; walks > most {
			t.Errorf("%d walks, want at most %d", walks, most)
		}
	})
}
