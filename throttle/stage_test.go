package throttle_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// A stage is a limiter, and a clock that stands still until the test moves it.
type stage struct {
	throttle.Limiter
	now     time.Time
	setTime func(time.Time)
	// as gives a limiter of the app: with the same limits and meters on Redis,
	// with its own in process.
	as func(app string) throttle.Limiter
	// lanes and rdb are the same limiter with its lanes, and its Redis; nil in
	// process. giver gives the lanes their turns once a test has pumped.
	lanes *throttle.Lanes
	rdb   redis.UniversalClient
	giver *giver
	ctx   context.Context // ends with the test
}

// noon is when every stage starts. All its 16 digits of microseconds differ
// from zero where rounding would show.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)

// wait moves the clock; a negative duration sets it back.
func (s *stage) wait(d time.Duration) {
	if s.giver != nil {
		s.giver.lives()
	}
	s.now = s.now.Add(d)
	s.setTime(s.now)
}

// restart empties the stage and sets its clock to noon.
func (s *stage) restart(t redistest.TB) {
	t.Helper()
	if err := s.rdb.FlushAll(context.Background()).Err(); err != nil {
		t.Fatalf("%v", err)
	}
	s.now, s.giver = noon, nil
	s.setTime(noon)
}

func localStage() *stage {
	s := &stage{now: noon, setTime: func(time.Time) {}}
	s.as = func(app string) throttle.Limiter {
		return &throttle.Local{App: app, Clock: func() time.Time { return s.now }}
	}
	s.Limiter = s.as("")
	return s
}

// miniStage is a miniredis: keys expire as the clock moves.
func miniStage(t redistest.TB) *stage {
	t.Helper()
	m, rdb := redistest.Mini(t)
	return redisStage(t, rdb, m.SetTime)
}

// realStage is a redis-server whose scripts take the time from the test. Their
// keys do not expire there: what has run out must count for nothing by itself.
func realStage(t redistest.TB) *stage {
	t.Helper()
	rdb := redistest.Real(t)
	hook := &testClock{}
	rdb.AddHook(redistest.Hook(hook.around))
	return redisStage(t, rdb, func(now time.Time) {
		hook.now = now
		if err := rdb.Set(context.Background(), "clock", now.UnixMicro(), 0).Err(); err != nil {
			t.Fatalf("%v", err)
		}
	})
}

func redisStage(t redistest.TB, rdb redis.UniversalClient, setTime func(time.Time)) *stage {
	setTime(noon)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	quiet := slog.New(slog.DiscardHandler)
	as := func(app string) *throttle.Redis {
		return throttle.New(rdb, throttle.RedisOptions{App: app, Logger: quiet})
	}
	return &stage{
		Limiter: as(""), lanes: throttle.NewLanes(as("")), rdb: rdb, now: noon, setTime: setTime, ctx: ctx,
		as: func(app string) throttle.Limiter { return as(app) },
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
	t.Run("redis", func(t *testing.T) { f(t, realStage(t)) })
}

// A testClock has a redis-server's scripts run in a frame of the test's. Redis
// never keeps the original, so each EVALSHA is followed by the EVAL that the
// frame is put around.
type testClock struct{ now time.Time }

func (c *testClock) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if time, ok := cmd.(*redis.TimeCmd); ok {
		time.SetVal(c.now)
		return nil
	}
	if args := cmd.Args(); strings.EqualFold(cmd.Name(), "eval") {
		args[1] = fmt.Sprintf(frame, args[1])
	}
	return next(ctx, cmd)
}

// The frame gives scripts the test's time. It refuses numbers among a command's
// arguments, which some versions of Redis write with an exponent, unless they
// are small, and replies that Redis would truncate.
const frame = `
local server = redis
local framed = {}
function framed.call(command, ...)
  local args = { ... }
  for i = 1, #args do
    local a = args[i]
    if type(a) == 'number' and (a ~= math.floor(a) or math.abs(a) > 1000000) then error(command .. ' has a number: ' .. a) end
    if type(a) == 'string' and string.find(a, '%%de%%+%%d') then error(command .. ' has an exponent: ' .. a) end
  end
  if command == 'TIME' then
    local us = server.call('GET', 'clock')
    return { string.sub(us, 1, -7), tostring(tonumber(string.sub(us, -6))) }
  elseif command == 'PEXPIRE' then
    return server.call('PERSIST', args[1])
  elseif command == 'SET' and args[3] == 'PX' then
    if not string.find(args[4], '^[1-9]%%d*$') then error('SET has PX ' .. args[4]) end
    return server.call('SET', args[1], args[2], unpack(args, 5))
  end
  return server.call(command, ...)
end

local function script(redis)
%s
end

local function whole(reply)
  if type(reply) == 'number' and (reply ~= math.floor(reply) or math.abs(reply) > 2 ^ 53) then error('replies ' .. reply) end
  if type(reply) == 'table' then
    for _, part in pairs(reply) do whole(part) end
  end
  return reply
end
return whole(script(framed))
`
