package redistest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clocked is [Real] with a clock that the test sets. Keys do not expire, so scripts must ignore keys
// whose time is over.
func Clocked(t TB) (rdb redis.UniversalClient, setTime func(time.Time)) {
	t.Helper()
	rdb = Real(t)
	hook := &clock{}
	rdb.AddHook(Hook(hook.around))
	return rdb, func(now time.Time) {
		hook.now = now
		if err := rdb.Set(context.Background(), "clock", now.UnixMicro(), 0).Err(); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// clock wraps scripts in a frame. Redis never sees the original, so the first EVALSHA fails, and the
// EVAL after it sends the script in its frame. Later calls use the frame's SHA1.
type clock struct {
	now    time.Time
	framed sync.Map // SHA1 of a script → SHA1 with its frame
}

func (c *clock) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if time, ok := cmd.(*redis.TimeCmd); ok {
		time.SetVal(c.now)
		return nil
	}
	switch args := cmd.Args(); strings.ToLower(cmd.Name()) {
	case "eval":
		script := fmt.Sprintf(frame, args[1])
		c.framed.Store(sha(args[1]), sha(script))
		args[1] = script
	case "evalsha":
		if framed, ok := c.framed.Load(args[1]); ok {
			args[1] = framed
		}
	}
	return next(ctx, cmd)
}

// frame gives scripts the test's time. It rejects arguments that are large numbers, which some
// versions of Redis write with an exponent, and replies that Redis would truncate.
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
