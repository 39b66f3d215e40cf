-- Moves what is known of a schedule past a tick. Each replica enqueues the tick under the
-- same job ID, and the first to move the schedule counts the tick.
-- Touches: cron (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] schedule
-- ARGV[2] the time up to which its ticks are done, in seconds; empty leaves it
-- ARGV[3] zone and cron line, empty for an entry that was removed
-- ARGV[4] what became of the tick: enqueued, skipped: … or failed: …; empty for no tick
-- ARGV[5] ID of the tick's job
-- ARGV[6] queue of that job
-- Returns 1, or 0 if the schedule was there already
-- @include scope
local name, last, spec, outcome, job, queue = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- A removed entry's state is kept for 30 days, because it counts ticks.
local FORGET = 2592000

-- The state of a schedule more than a day ahead is of a time when Redis's clock was wrong.
local AHEAD = 86400

local schedule = hg('cron', name)

local function count(text, n) call('HINCRBY', schedule, string.match(text, '^%l+'), n) end

local before = tonumber(call('HGET', schedule, 'last')) or 0
local moves = last ~= '' and (before < tonumber(last) or before > now_us / 1000000 + AHEAD)
if moves then call('HSET', schedule, 'last', last) end
if outcome ~= '' then
  local tick, said = unpack(call('HMGET', schedule, 'tick', 'outcome'))
  local skipped = job ~= '' and tick == last and said ~= outcome -- by a replica that did not enqueue it
  if skipped then count(said, -1) end
  if moves or skipped then
    call('HSET', schedule, 'tick', last, 'outcome', outcome)
    if job ~= '' then call('HSET', schedule, 'job', job, 'job_queue', queue) end
    count(outcome, 1)
  end
end
if spec ~= '' then
  call('HSET', schedule, 'spec', spec)
  call('PERSIST', schedule)
else
  call('HDEL', schedule, 'spec')
  if call('HEXISTS', schedule, 'paused') == 0 then call('EXPIRE', schedule, FORGET) end
end
return moves and 1 or 0
