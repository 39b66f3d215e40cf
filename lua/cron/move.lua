-- Advances the last tick of a schedule. Every replica enqueues the tick under the same job
-- ID, and the first to advance the schedule counts the tick.
-- Touches: cron (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] schedule
-- ARGV[2] the time up to which its ticks are done, in seconds; empty leaves it
-- ARGV[3] zone and cron line, empty for an entry that was removed
-- ARGV[4] what became of the tick: enqueued, skipped: … or failed: …; empty for no tick
-- ARGV[5] ID and queue of the tick's job; empty for none
-- Returns 1, or 0 if the schedule was there already
-- @include scope
local name, last, spec, outcome, job = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

-- The state of a removed entry is kept for 30 days, because it counts ticks.
local FORGET = 2592000

-- A last tick that is more than a day ahead is of a time when Redis's clock was wrong.
local MAX_AHEAD = 86400

local schedule = hg('cron', name)
local before = tonumber(call('HGET', schedule, 'last')) or 0
local moves = last ~= '' and (before < tonumber(last) or before > now_us / 1000000 + MAX_AHEAD)
if moves then call('HSET', schedule, 'last', last) end
if moves and outcome ~= '' then
  call('HSET', schedule, 'tick', last, 'outcome', outcome)
  call('HINCRBY', schedule, string.match(outcome, '^%l+'), 1)
end
-- Another replica may have skipped the tick for which this one has enqueued a job.
if job ~= '' and call('HGET', schedule, 'tick') == last then call('HSET', schedule, 'job', job, 'outcome', outcome) end
if spec ~= '' then
  call('HSET', schedule, 'spec', spec)
  call('PERSIST', schedule)
else
  call('HDEL', schedule, 'spec')
  if call('HEXISTS', schedule, 'paused') == 0 then call('EXPIRE', schedule, FORGET) end
end
return moves and 1 or 0
