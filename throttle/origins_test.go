package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// An origin is one of the small systems that this project started from.
type origin struct {
	name, system string // as in docs/limits.md
	// gives checks that the system gives what it was built for, without the original's defect. It
	// runs on a local limiter, on miniredis and on a redis-server.
	gives func(t *testing.T, s *stage)
	// leaves checks what only Redis can show, by Redis's own clock: keys that expire, other
	// processes, failures. A local limiter has no keys, one process, and nothing that can fail.
	leaves func(t *testing.T, rdb redis.UniversalClient)
}

var origins = []origin{
	{"S1", "a sliding window per user and action", slidingWindow, slidingWindowExpires},
	{"S2", "the same for very large counts", largeCounts, nil},
	{"S3", "a funnel on one machine", funnel, nil},
	{"S4", "a funnel on Redis", sharedFunnel, nil},
	{"S5", "redis-cell", redisCell, nil},
	{"S6", "counters: ten a second for an address, hits of each user and day", counters, countersCrash},
	{"S7", "a token bucket with policies in Redis", policies, sharedPolicies},
	{"S8", "a fixed window per user and minute", minutes, nil},
	{"S9", "a sliding window in one script", noTrace, noTraceExpires},
}

func TestOrigins(t *testing.T) {
	for _, o := range origins {
		t.Run(o.name, func(t *testing.T) {
			onEvery(t, o.gives)
			if o.leaves != nil {
				t.Run("leaves", func(t *testing.T) { redistest.Both(t, o.leaves) })
			}
		})
	}
}

// TestOrigins_Documented checks that docs/limits.md has a row for each origin, and no other.
func TestOrigins_Documented(t *testing.T) {
	page, err := os.ReadFile("../docs/limits.md")
	must(t, err)
	var rows, want [][]string
	for _, row := range regexp.MustCompile(`(?m)^\| (S\d+) \| ([^|]+) \|`).FindAllStringSubmatch(string(page), -1) {
		rows = append(rows, row[1:])
	}
	for _, o := range origins {
		want = append(want, []string{o.name, o.system})
	}
	expect(t, "rows of docs/limits.md", rows, want)
}

// slidingWindow is S1. The original counted denied calls too, so hammering kept a user out for
// ever, and two calls in one millisecond were one.
func slidingWindow(t *testing.T, s *stage) {
	define(t, s, perMinute("reply", 5))
	expect(t, "20 calls in one microsecond", count(t, s, "reply", 20), 5)
	for range 59 {
		s.wait(time.Second)
		expect(t, "hammering within the minute", count(t, s, "reply", 3), 0)
	}
	s.wait(time.Second)
	expect(t, "a minute later", rush(t, s, "reply", 20), 5)
}

// slidingWindowExpires: a cold user costs no memory.
func slidingWindowExpires(t *testing.T, rdb redis.UniversalClient) {
	l := throttle.New(rdb, throttle.Options{})
	define(t, l, perMinute("reply", 5))
	count(t, l, "reply", 20)
	metersExpire(t, rdb, 2*time.Minute)
}

// largeCounts is S2. The log of S1 would have a million entries.
func largeCounts(t *testing.T, s *stage) {
	limit := throttle.Limit{Name: "hits", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(1_000_000)}
	define(t, s, limit)
	var history []throttletest.Admission
	for i := range 400 {
		if d := ask(t, s, "hits", 5000+97*(i%50)); d.OK() {
			history = append(history, throttletest.Admission{At: d.At.UnixMicro(), Cost: d.Cost})
		}
		s.wait(time.Duration(150+i%100) * time.Millisecond)
	}
	must(t, throttletest.Check(limit, history))
	fewer := limit
	if fewer.Rate.N = 980_000; throttletest.Over(fewer, history) == 0 {
		t.Errorf("no minute has more than %d, want most of a million", fewer.Rate.N)
	}
	for key, value := range snapshot(t, s) {
		if text, ok := value.(string); ok && len(text) > 62*20 {
			t.Errorf("%s takes %d bytes", key, len(text))
		}
	}
}

var watering = throttle.Limit{Name: "watering", Kind: throttle.Funnel, Rate: throttle.Every(3 * time.Second), Capacity: 10}

// funnel is S3. The original mistook the unit of its rate, lost the time in which less than one unit
// leaked, and overflowed after a long time.
func funnel(t *testing.T, s *stage) {
	define(t, s, watering)
	expect(t, "20 at once", count(t, s, "watering", 20), 10)
	passed := 0
	for range 30 {
		s.wait(time.Second)
		passed += count(t, s, "watering", 1)
	}
	expect(t, "in 30 s, at one per 3 s", passed, 10)
	expect(t, "retry of a watering of 4", ask(t, s, "watering", 4).RetryAfter, 12*time.Second)
	s.wait(100 * 365 * 24 * time.Hour)
	expect(t, "20 at once after a hundred years", count(t, s, "watering", 20), 10)
}

// sharedFunnel is S4. In the original, two clients could read the same state and both write it.
func sharedFunnel(t *testing.T, s *stage) {
	define(t, s, watering)
	expect(t, "20 at once, of several clients", rush(t, s, "watering", 20), 10)
	expect(t, "retry", ask(t, s, "watering", 1).RetryAfter, 3*time.Second)
	s.wait(12 * time.Second)
	expect(t, "12 s later", rush(t, s, "watering", 20), 4)
}

// counters is S6. The originals admitted 11, raced, and admitted twice as many around the edge of a
// second.
func counters(t *testing.T, s *stage) {
	define(t, s,
		throttle.Limit{Name: "address", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)},
		throttle.Limit{Name: "daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1000), Zone: "Asia/Shanghai"})
	s.wait(s.now.Truncate(time.Second).Add(1900 * time.Millisecond).Sub(s.now))
	expect(t, "30 at once", rush(t, s, "address", 30), 10)
	s.wait(200 * time.Millisecond)
	expect(t, "after the edge of the second", rush(t, s, "address", 30), 0)
	s.wait(800 * time.Millisecond)
	expect(t, "a second later", count(t, s, "address", 30), 10)

	hits := func() int { d := ask(t, s, "daily", 0); return d.Capacity - d.Remaining }
	count(t, s, "daily", 7)
	expect(t, "hits of the day", hits(), 7)
	midnight := time.Date(2026, 11, 21, 0, 0, 0, 0, time.FixedZone("Asia/Shanghai", 8*60*60))
	s.wait(midnight.Sub(s.now) - time.Microsecond)
	expect(t, "hits right before midnight", hits(), 7)
	s.wait(time.Microsecond)
	expect(t, "hits at midnight", hits(), 0)
}

// countersCrash: in one original, a client that crashed between INCR and EXPIRE left a counter for
// ever. Here clients crash after each number of commands.
func countersCrash(t *testing.T, rdb redis.UniversalClient) {
	var left atomic.Int64
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if left.Add(-1) < 0 {
			return io.ErrUnexpectedEOF
		}
		return next(ctx, cmd)
	}))
	alive := func() { left.Store(1000) }
	for commands := range int64(4) {
		alive()
		must(t, rdb.ScriptFlush(t.Context()).Err())
		l := throttle.New(rdb, throttle.Options{})
		define(t, l, throttle.Limit{Name: "address", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)},
			throttle.Limit{Name: "second", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(10)})
		for _, limit := range []string{"address", "second"} {
			left.Store(commands)
			_, err := l.Allow(t.Context(), limit, fmt.Sprint(commands))
			alive()
			if err != nil && !errors.Is(err, throttle.ErrUnavailable) {
				t.Errorf("crash after %d commands: %v", commands, err)
			}
		}
	}
	metersExpire(t, rdb, 62*time.Second)
}

func policy() throttle.Limit {
	return throttle.Limit{
		Name: "api", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 3, Per: 10 * time.Second}, Capacity: 5,
		Apps: []string{"headgate", "foobar"},
	}
}

// policies is S7. The original's init filled the bucket, its refill lost fractions, and "bar" was
// taken for "foobar".
func policies(t *testing.T, s *stage) {
	l := s.as("headgate")
	define(t, l, policy())
	expect(t, "a full bucket", count(t, l, "api", 9), 5)
	define(t, l, policy())
	expect(t, "after it was defined again", count(t, l, "api", 9), 0)
	passed := 0
	for range 100 {
		s.wait(time.Second)
		passed += count(t, l, "api", 1)
	}
	expect(t, "in 100 s, at 3 per 10 s", passed, 30)

	faster := policy()
	faster.Rate = throttle.PerSecond(4)
	define(t, l, faster)
	s.wait(time.Second)
	expect(t, "a second after the policy changed", count(t, l, "api", 9), 4)

	for _, app := range []string{"bar", "foo", "foobar2", "headgate,foobar", ""} {
		other := s.as(app)
		define(t, other, faster)
		expect(t, "app "+app, ask(t, other, "api", 1).String(), "limit api is for other apps")
	}
	must(t, l.Delete(t.Context(), "api"))
	expect(t, "after it was deleted", ask(t, l, "api", 1).String(), "no such limit: api")
}

// sharedPolicies: one client defines and changes a policy for all, and a Redis that fails is an
// answer.
func sharedPolicies(t *testing.T, rdb redis.UniversalClient) {
	headgate, foobar := throttle.New(rdb, throttle.Options{App: "headgate"}), throttle.New(rdb, throttle.Options{App: "foobar"})
	define(t, headgate, policy())
	expect(t, "of a client that defined nothing", ask(t, foobar, "api", 2).OK(), true)
	larger := policy()
	larger.Capacity = 7
	must(t, foobar.Set(t.Context(), larger))
	expect(t, "capacity, changed by the other", ask(t, headgate, "api", 1).Capacity, 7)

	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	gone := redis.NewClient(&redis.Options{Dialer: refused, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { gone.Close() })
	d, err := throttle.New(gone, throttle.Options{}).Allow(t.Context(), "api", "k")
	if d.Outcome != throttle.Unavailable || d.OK() || !errors.Is(err, throttle.ErrUnavailable) {
		t.Errorf("without Redis: %s and %v, want unavailable", d, err)
	}
}

// minutes is S8. Around the edge of a minute twice as many pass, as in the original. The sliding
// log of S1 has no edge.
func minutes(t *testing.T, s *stage) {
	define(t, s, perMinute("sliding", 5), throttle.Limit{Name: "minute", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(5)})
	for range 5 {
		expect(t, "of 9 in a minute", count(t, s, "minute", 9), 5)
		d := ask(t, s, "minute", 1)
		expect(t, "retry", s.now.Add(d.RetryAfter), s.now.Truncate(time.Minute).Add(time.Minute))
		s.wait(d.RetryAfter - time.Microsecond)
		expect(t, "in the last microsecond of the minute", count(t, s, "minute", 9), 0)
		s.wait(time.Microsecond)
	}
	if meters := meterKeys(t, s); s.rdb != nil && len(meters) != 1 {
		t.Errorf("five minutes of one user left %q, want one key", meters)
	}
	passed := 0
	for range 9 {
		d, err := s.Allow(t.Context(), "minute", "")
		must(t, err)
		if d.OK() {
			passed++
		}
	}
	expect(t, "of 9 anonymous calls", passed, 5)

	s.wait(59 * time.Second)
	before := [2]int{count(t, s, "minute", 9), count(t, s, "sliding", 9)}
	s.wait(time.Second)
	after := [2]int{count(t, s, "minute", 9), count(t, s, "sliding", 9)}
	expect(t, "before and after the edge", [2][2]int{before, after}, [2][2]int{{5, 5}, {5, 0}})
}

// noTrace is S9. The original let one call more pass, because it read "none left" as allowed.
func noTrace(t *testing.T, s *stage) {
	define(t, s, perMinute("reply", 5))
	for left := 4; left >= 0; left-- {
		d := ask(t, s, "reply", 1)
		expect(t, "left", []any{d.Outcome, d.Remaining}, []any{allowed, left})
	}
	before := limiterKeys(t, s)
	for range 50 {
		expect(t, "denied", ask(t, s, "reply", 1).Outcome, denied)
		s.wait(100 * time.Millisecond)
	}
	expect(t, "keys after 50 denials", limiterKeys(t, s), before)
	expect(t, "retry", ask(t, s, "reply", 1).RetryAfter, 55*time.Second)
	s.wait(55 * time.Second)
	expect(t, "after the retry", count(t, s, "reply", 9), 5)
}

// noTraceExpires: the original gave EXPIRE its milliseconds as seconds.
func noTraceExpires(t *testing.T, rdb redis.UniversalClient) {
	l := throttle.New(rdb, throttle.Options{})
	define(t, l, throttle.Limit{Name: "reply", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(5)})
	count(t, l, "reply", 9)
	metersExpire(t, rdb, 62*time.Second)
}

// rush makes calls from several goroutines at once, and returns the number of allowed ones. On Redis
// they have four limiters, as four processes have; a local limiter is one process.
func rush(t *testing.T, s *stage, limit string, calls int) int {
	t.Helper()
	clients := []*throttle.Limiter{s.Limiter}
	for s.rdb != nil && len(clients) < 4 {
		clients = append(clients, s.as(""))
	}
	var passed atomic.Int64
	var callers sync.WaitGroup
	for i := range calls {
		callers.Go(func() {
			d, err := clients[i%len(clients)].Allow(t.Context(), limit, "k")
			if err != nil {
				t.Error(err)
			} else if d.OK() {
				passed.Add(1)
			}
		})
	}
	callers.Wait()
	return int(passed.Load())
}

// limiterKeys is snapshot without the clock of the test.
func limiterKeys(t *testing.T, s *stage) map[string]any {
	t.Helper()
	keys := snapshot(t, s)
	delete(keys, "clock")
	return keys
}

func meterKeys(t *testing.T, s *stage) (keys []string) {
	t.Helper()
	for key := range snapshot(t, s) {
		if strings.HasPrefix(key, hg("m:")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// metersExpire checks that Redis removes each meter within a time. All of them have a minute more
// than their period, for a clock that steps back.
func metersExpire(t *testing.T, rdb redis.UniversalClient, within time.Duration) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), hg("m:*")).Result()
	must(t, err)
	if len(keys) == 0 {
		t.Error("no meters, want some")
	}
	for _, key := range keys {
		ttl, err := rdb.PTTL(t.Context(), key).Result()
		must(t, err)
		if ttl == -1 || ttl > within {
			t.Errorf("%s expires in %s, want %s at most", key, ttl, within)
		}
	}
}
