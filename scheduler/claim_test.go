package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// A scope belongs to one asynq Redis: a server of a second one does not start,
// and says where both are.
func TestAnotherAsynqRedis(t *testing.T) {
	ctx := t.Context()
	limiter, second := redistest.Real(t), redistest.Real(t)
	first := redistest.Run(t)
	begin := func(queues redis.UniversalClient) (*Server, error) {
		lanes := throttle.NewLanes(throttle.New(limiter, throttle.RedisOptions{}))
		rules := Rules{For: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }}
		s, err := NewServer(queues, rules, asynq.Config{Logger: silent{}}, WithLimiter(lanes))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Shutdown)
		return s, s.Start(asynq.NewServeMux())
	}
	rdb := first.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	if _, err := begin(rdb); err != nil {
		t.Fatal(err)
	}
	_, err := begin(second)
	for _, address := range []string{first.Addr(), addressOf(second)} {
		if err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("the second asynq Redis: %v; want an error that names %s", err, address)
		}
	}
	if err := rdb.FlushAll(ctx).Err(); err != nil { // it is at the same address still
		t.Fatal(err)
	}
	if _, err := begin(rdb); err != nil {
		t.Errorf("the first asynq Redis, without its data: %v", err)
	}
	data := rdb.Get(ctx, dataKey).Val() // the second becomes a copy of the first
	if err := second.Set(ctx, dataKey, data, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := begin(second); err != nil {
		t.Errorf("the first one's data at another address: %v", err)
	}
}
