package throttle_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// A stage is a limiter with a clock that only the test moves.
type stage struct {
	*throttle.Limiter
	now     time.Time
	setTime func(time.Time)
	// as gives a limiter of the app: with the same limits and meters on Redis,
	// with its own in process.
	as func(app string) *throttle.Limiter
	// redis and rdb are the same limiter, and its Redis; nil in process.
	redis *throttle.Limiter
	rdb   redis.UniversalClient
}

// noon is when every stage starts. All its 16 digits of microseconds differ
// from zero where rounding would show.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)

// wait moves the clock; a negative duration sets it back.
func (s *stage) wait(d time.Duration) {
	s.now = s.now.Add(d)
	s.setTime(s.now)
}

// restart empties the stage and sets its clock to noon.
func (s *stage) restart(t redistest.TB) {
	t.Helper()
	if err := s.rdb.FlushAll(context.Background()).Err(); err != nil {
		t.Fatalf("%v", err)
	}
	s.now = noon
	s.setTime(noon)
}

func localStage() *stage {
	s := &stage{now: noon, setTime: func(time.Time) {}}
	s.as = func(app string) *throttle.Limiter {
		return throttle.NewLocal(throttle.Options{App: app, Clock: func() time.Time { return s.now }})
	}
	s.Limiter = s.as("")
	return s
}

// miniStage is a miniredis: keys expire as the clock moves.
func miniStage(t redistest.TB) *stage {
	t.Helper()
	m, rdb := redistest.Mini(t)
	return redisStage(rdb, m.SetTime)
}

// realStage is a redis-server whose scripts take the time from the test.
func realStage(t redistest.TB) *stage {
	t.Helper()
	rdb, setTime := redistest.Clocked(t)
	return redisStage(rdb, setTime)
}

func redisStage(rdb redis.UniversalClient, setTime func(time.Time)) *stage {
	setTime(noon)
	quiet := slog.New(slog.DiscardHandler)
	as := func(app string) *throttle.Limiter {
		return throttle.New(rdb, throttle.Options{App: app, Logger: quiet})
	}
	return &stage{
		Limiter: as(""), redis: as(""), rdb: rdb, now: noon, setTime: setTime, as: as,
	}
}

// onEvery runs f on every implementation of Limiter.
func onEvery(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	t.Run("local", func(t *testing.T) { f(t, localStage()) })
	onRedis(t, f)
}

// onRedis runs f on miniredis and on a redis-server.
func onRedis(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { f(t, miniStage(t)) })
	t.Run("redis", func(t *testing.T) {
		limittest.FewerChecks(t)
		f(t, realStage(t))
	})
}

var background = context.Background()

func one(limit string) throttle.Need { return throttle.Need{Limit: limit, Key: "k", Cost: 1} }

func perMinute(name string, n int) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.PerMinute(n)}
}

// hg is the name of a key of the stage's scope.
func hg(name string) string { return "hg:{default}:" + name }
