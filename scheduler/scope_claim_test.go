package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestClaim_AnotherAsynqRedis: a scope belongs to one asynq Redis. A server of a second one does
// not start, and its error names the first one's data. If the first loses its data, its servers
// replace their claim within 20 s, and a server of the second is rejected until then too. A copy of the
// first, as after a failover, is accepted.
func TestClaim_AnotherAsynqRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, first := redistest.Mini(t)
		_, second := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var log journal
		begin := func(queues redis.UniversalClient) error {
			opts := []Option{WithLimiter(throttle.New(limiter, throttle.Options{})), WithLogger(log.logger())}
			return newServer(t, queues, nil, asynq.Config{TaskCheckInterval: time.Second}, opts...).Start(asynq.NewServeMux())
		}
		for range 2 {
			if err := begin(first); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			data := first.Get(t.Context(), redishealth.DataKey).Val()
			if err := begin(second); err == nil || !strings.Contains(err.Error(), data) {
				t.Errorf("the second asynq Redis: %v, want an error that names the first one's data, %s", err, data)
			}
			m.FlushAll()
			time.Sleep(claimInterval + time.Second)
		}
		if err := begin(first); err != nil {
			t.Errorf("the first asynq Redis, with other data: %v", err)
		}
		data := first.Get(t.Context(), redishealth.DataKey).Val()
		if err := second.Set(t.Context(), redishealth.DataKey, data, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := begin(second); err != nil {
			t.Errorf("the first one's data at another address: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if log.String() != "" {
			t.Errorf("logged: %s", log.String())
		}
	})
}
