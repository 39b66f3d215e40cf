package waitdb_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A fixture is a limiter, and a clock that is stopped until the test moves it.
type fixture struct {
	*throttle.Limiter
	now     time.Time
	setTime func(time.Time)
	// lanes and rdb are the same limiter with its lanes, and its Redis. dispatcher gives the lanes
	// their turns once a test has pumped.
	lanes      *waitdb.DB
	rdb        redis.UniversalClient
	dispatcher *dispatcher
	ctx        context.Context // ends with the test
}

// noon is when every fixture starts. All its 16 digits of microseconds differ
// from zero where rounding would show.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)

// wait moves the clock; a negative duration sets it back.
func (s *fixture) wait(d time.Duration) {
	if s.dispatcher != nil {
		s.dispatcher.lives()
	}
	s.now = s.now.Add(d)
	s.setTime(s.now)
}

// restart empties the fixture and sets its clock to noon.
func (s *fixture) restart(t redistest.TB) {
	t.Helper()
	if err := s.rdb.FlushAll(context.Background()).Err(); err != nil {
		t.Fatalf("%v", err)
	}
	s.now, s.dispatcher = noon, nil
	s.setTime(noon)
}

// miniFixture is a miniredis: keys expire as the clock moves.
func miniFixture(t redistest.TB) *fixture {
	t.Helper()
	m, rdb := redistest.Mini(t)
	return redisFixture(t, rdb, m.SetTime)
}

// realFixture is a redis-server whose scripts take the time from the test.
func realFixture(t redistest.TB) *fixture {
	t.Helper()
	rdb, setTime := redistest.Clocked(t)
	return redisFixture(t, rdb, setTime)
}

func redisFixture(t redistest.TB, rdb redis.UniversalClient, setTime func(time.Time)) *fixture {
	setTime(noon)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	quiet := slog.New(slog.DiscardHandler)
	limiter := func() *throttle.Limiter { return throttle.New(rdb, throttle.Options{Logger: quiet}) }
	return &fixture{Limiter: limiter(), lanes: waitdb.New(limiter()), rdb: rdb, now: noon, setTime: setTime, ctx: ctx}
}

// onRedis runs f on miniredis and on a redis-server.
func onRedis(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { f(t, miniFixture(t)) })
	t.Run("redis", func(t *testing.T) {
		limittest.FewerChecks(t)
		f(t, realFixture(t))
	})
}

var background = context.Background()

const (
	allowed = throttle.Allowed
	denied  = throttle.Denied
	never   = throttle.Impossible
	noLimit = throttle.NoLimit
)

func define(t *testing.T, l interface {
	Define(context.Context, ...throttle.Limit) error
}, limits ...throttle.Limit,
) {
	t.Helper()
	must(t, l.Define(t.Context(), limits...))
}

// ask takes n permits of a limit for the key "k", beside the lanes.
func ask(t *testing.T, l interface {
	AllowN(ctx context.Context, limit, key string, n int) (throttle.Decision, error)
}, limit string, n int,
) throttle.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), limit, "k", n)
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	must(t, err)
	return at
}
