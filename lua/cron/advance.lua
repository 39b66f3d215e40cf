-- Records that the ticks of a schedule are done up to a time. Every replica enqueues a tick under
-- the same job ID. The first replica that calls this script for the tick also counts the tick.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] schedule
-- ARGV[2] time up to which the schedule's ticks are done, Unix seconds
-- ARGV[3] zone and cron line of the schedule; '' if the schedule is removed or disabled: then the
--   recorded time stays as it is
-- ARGV[4] outcome of the tick: 'enqueued', 'skipped: …' or 'failed: …'; '' if there is no tick
-- ARGV[5] ID and queue of the tick's job; '' if this replica enqueued no job
-- Returns 1, or 0 if the recorded time stays as it is
-- @include scope
local name, last, spec, outcome, job = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- Seconds for which a removed or disabled schedule's state is kept if it is not paused: 30 days.
local KEPT_S = 2592000

local schedule = hg('cron', name)
local before = tonumber(call('HGET', schedule, 'last')) or 0
local is_new = spec ~= '' and before < tonumber(last)
if is_new then call('HSET', schedule, 'last', last) end
if is_new and outcome ~= '' then
  call('HSET', schedule, 'tick', last, 'outcome', outcome)
  call('HINCRBY', schedule, string.match(outcome, '^%l+'), 1)
end
-- Another replica may have recorded the tick as skipped, which stays counted.
if job ~= '' and call('HGET', schedule, 'tick') == last then call('HSET', schedule, 'job', job, 'outcome', outcome) end
if spec ~= '' then
  call('HSET', schedule, 'spec', spec)
  call('PERSIST', schedule)
else
  call('HDEL', schedule, 'spec')
  if call('HEXISTS', schedule, 'paused') == 0 then call('EXPIRE', schedule, KEPT_S) end
end
return is_new and 1 or 0
