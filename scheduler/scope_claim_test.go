package scheduler

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestClaim_AnotherAsynqRedis: a scope belongs to one asynq Redis. A server of a second one does
// not start, and its error names both.
func TestClaim_AnotherAsynqRedis(t *testing.T) {
	ctx := t.Context()
	limiter, second := redistest.Real(t), redistest.Real(t)
	first := redistest.Run(t)
	begin := func(queues redis.UniversalClient) (*Server, error) {
		lanes := waitdb.New(throttle.New(limiter, throttle.Options{}))
		rules := Rules{RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }}
		s, err := NewServer(queues, rules, asynq.Config{Logger: silent{}}, WithLimiter(lanes.Limiter))
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
	for _, address := range []string{first.Addr(), addressOf(second, "")} {
		if err == nil || !strings.Contains(err.Error(), address) {
			t.Errorf("the second asynq Redis: %v; want an error that names %s", err, address)
		}
	}
	if err := rdb.FlushAll(ctx).Err(); err != nil { // it still has the same address
		t.Fatal(err)
	}
	if _, err := begin(rdb); err != nil {
		t.Errorf("the first asynq Redis, without its data: %v", err)
	}
	data := rdb.Get(ctx, redishealth.DataKey).Val() // the second becomes a copy of the first
	if err := second.Set(ctx, redishealth.DataKey, data, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := begin(second); err != nil {
		t.Errorf("the first one's data at another address: %v", err)
	}
}

// TestAddressOf: a Redis without a unique address is named by its data.
func TestAddressOf(t *testing.T) {
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "one", SentinelAddrs: []string{"10.0.0.1:26379"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"b": "10.0.0.2:6379", "a": "10.0.0.1:6379"}})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:6379"}})
	host, _ := os.Hostname()
	for _, test := range []struct {
		rdb  redis.UniversalClient
		want string
	}{
		{redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", DB: 3}), "10.0.0.1:6379/3"},
		{redis.NewClient(&redis.Options{Addr: "redis.example:6379"}), "redis.example:6379/0"},
		{redis.NewClient(&redis.Options{Addr: "localhost:6379"}), "localhost:6379 on " + host + "/0"},
		{redis.NewClient(&redis.Options{Addr: "[::1]:6379"}), "[::1]:6379 on " + host + "/0"},
		{redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis.sock"}), "/run/redis.sock on " + host + "/0"},
		{sentinel, "an address that Sentinel knows, where headgate:id is it"},
		{ring, "10.0.0.1:6379,10.0.0.2:6379"},
		{cluster, "10.0.0.1:6379"},
		{struct{ redis.UniversalClient }{ring}, "struct { redis.UniversalClient }, where headgate:id is it"},
	} {
		if got := addressOf(test.rdb, "it"); got != test.want {
			t.Errorf("%T: %q, want %q", test.rdb, got, test.want)
		}
		_ = test.rdb.Close()
	}
}

// nowhere is a client without an address.
type nowhere struct{ redis.UniversalClient }

// TestClaim_NoAddress: of two asynq Redises without addresses the second is rejected as well. If
// the first loses its data, its servers replace their claim within 20 s, and a server of the second
// is rejected until then too.
func TestClaim_NoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, first := redistest.Mini(t)
		_, second := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var log journal
		begin := func(queues redis.UniversalClient) error {
			lanes := waitdb.New(throttle.New(limiter, throttle.Options{}))
			rules := Rules{RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }}
			s, err := NewServer(nowhere{queues}, rules, asynq.Config{Logger: silent{}, TaskCheckInterval: time.Second}, WithLimiter(lanes.Limiter), WithLogger(log.logger()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
			return s.Start(asynq.NewServeMux())
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
		time.Sleep(5 * time.Minute)
		if log.String() != "" {
			t.Errorf("logged: %s", log.String())
		}
	})
}
