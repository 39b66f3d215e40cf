package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// exampleRedis replaces your Redis: a miniredis whose clock does not move, so
// that the examples always print the same.
func exampleRedis() (rdb *redis.Client, clock *miniredis.Miniredis, stop func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	m.SetTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	rdb = redis.NewClient(&redis.Options{Addr: m.Addr()})
	return rdb, m, func() {
		rdb.Close()
		m.Close()
	}
}

// Two calls a second, with room for three at once.
func Example() {
	rdb, clock, stop := exampleRedis()
	defer stop()
	ctx := context.Background()

	limiter := throttle.New(rdb, throttle.Options{})
	err := limiter.Define(ctx, throttle.Limit{
		Name: "api", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(2), Capacity: 3,
	})
	if err != nil {
		panic(err)
	}
	for range 4 {
		d, err := limiter.Allow(ctx, "api", "alice")
		if err != nil {
			panic(err) // it wraps throttle.ErrUnavailable
		}
		fmt.Println(d)
		if d.Outcome == throttle.Denied {
			clock.SetTime(d.At.Add(d.RetryAfter))
		}
	}
	d, _ := limiter.Allow(ctx, "api", "alice")
	fmt.Println(d)
	// Output:
	// allowed by api for alice, 2 of 3 left
	// allowed by api for alice, 1 of 3 left
	// allowed by api for alice, 0 of 3 left
	// denied by api for alice: retry after 500 ms
	// allowed by api for alice, 0 of 3 left
}

func ExampleNew() {
	rdb, _, stop := exampleRedis()
	defer stop()
	limiter := throttle.New(rdb, throttle.Options{Scope: "crawl", App: "crawler"})
	d, err := limiter.Allow(context.Background(), "pages", "example.com")
	fmt.Println(d, err)
	// Output: no such limit: pages <nil>
}

func ExampleLimiter_AllowAll() {
	rdb, _, stop := exampleRedis()
	defer stop()
	ctx := context.Background()

	limiter := throttle.New(rdb, throttle.Options{})
	limiter.Define(ctx,
		throttle.Limit{Name: "api-daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000), Zone: "Europe/Berlin"},
		throttle.Limit{Name: "account", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(1)})
	for range 2 {
		d, _ := limiter.AllowAll(ctx, throttle.Need{Limit: "api-daily", Cost: 5}, throttle.Need{Limit: "account", Key: "42"})
		fmt.Println(d)
	}
	d, _ := limiter.AllowN(ctx, "api-daily", "", 0)
	fmt.Println("left today:", d.Remaining)
	// Output:
	// allowed by account for 42, 0 of 1 left
	// denied by account for 42: retry after 1 min
	// left today: 1995
}

func ExampleLimiter_Define() {
	rdb, _, stop := exampleRedis()
	defer stop()
	ctx := context.Background()

	limiter := throttle.New(rdb, throttle.Options{})
	file := throttle.Limit{Name: "api", Kind: throttle.SlidingWindow, Rate: throttle.PerHour(1000)}
	limiter.Define(ctx, file)
	changed := file
	changed.Rate = throttle.PerHour(500)
	limiter.Set(ctx, changed)
	limiter.Define(ctx, file) // as every process does when it starts
	limits, _ := limiter.Limits(ctx)
	for _, l := range limits {
		fmt.Println(l.Name, l)
	}
	// Output: api sliding_window 500/h
}

func ExampleLimiter_Block() {
	rdb, clock, stop := exampleRedis()
	defer stop()
	ctx := context.Background()

	limiter := throttle.New(rdb, throttle.Options{})
	limiter.Define(ctx, throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Every(2 * time.Second)})
	// The host answered 429 with "Retry-After: 30".
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	limiter.Block(ctx, "host", "example.com", now.Add(30*time.Second))
	d, _ := limiter.Allow(ctx, "host", "example.com")
	fmt.Println(d)
	d, _ = limiter.Allow(ctx, "host", "example.org")
	fmt.Println(d)
	clock.SetTime(now.Add(30 * time.Second))
	d, _ = limiter.Allow(ctx, "host", "example.com")
	fmt.Println(d)
	// Output:
	// denied by host for example.com: retry after 30 s
	// allowed by host for example.org, 0 of 1 left
	// allowed by host for example.com, 0 of 1 left
}

// The command CL.THROTTLE laoqian:reply 15 30 60 of redis-cell.
func ExampleLimiter_Throttle() {
	rdb, _, stop := exampleRedis()
	defer stop()

	limiter := throttle.New(rdb, throttle.Options{})
	d, _ := limiter.Throttle(context.Background(), "laoqian:reply", 15, 30, time.Minute, 1)
	fmt.Println(d.Outcome, d.Remaining, d.Capacity, d.RetryAfter, d.ResetAfter)
	// Output: allowed 15 16 0s 2s
}

func ExampleNewLocal() {
	ctx := context.Background()
	limiter := throttle.NewLocal(throttle.Options{}) // no Redis, for programs of one process
	limiter.Define(ctx, throttle.Limit{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.PerHour(1), Capacity: 10})
	passed := 0
	for range 20 {
		if d, _ := limiter.Allow(ctx, "funnel", ""); d.OK() {
			passed++
		}
	}
	fmt.Println(passed, "of 20")
	// Output: 10 of 20
}

func ExampleParseRate() {
	for _, text := range []string{"2000/day", "10/s", "1/2s", "1/1m30s", "fast"} {
		rate, err := throttle.ParseRate(text)
		fmt.Println(rate, err)
	}
	// Output:
	// 2000/day <nil>
	// 10/s <nil>
	// 1/2s <nil>
	// 1/90s <nil>
	//  rate "fast": want COUNT/PERIOD, such as 2000/day, 10/s or 1/2s
}
