-- Extends a holder's leases on concurrency limits.
-- Touches: limit (r), m (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] holder
-- ARGV[2…] limit, key, cost for each need
-- Returns 1, or 0 if one of the leases was lost
-- What every script starts with: the scope's keys and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- Times beyond this, in the year 2255, are this: to here numbers are exact.
local FAR = 9007199254740992

-- A meter's key lives so much longer than its state matters, in milliseconds:
-- a clock that steps back by less finds it.
local GRACE = 60000

-- The only way a number becomes text: tostring would keep 14 digits of 16.
local function int(x) return string.format('%.0f', x) end

-- The one home of the layout: hg('limit', name) is the key hg:{scope}:limit:<name>.
--   limit:<name>       hash    a limit's definition, and what changes beside it
--   limits             set     their names
--   deleted            hash    limits that were deleted on purpose, and their last summary
--   blocked:<name>     zset    keys of a limit by the microsecond until which they are shut
--   m:<kind>:<meter>   by kind a meter's state; <meter> is <name>|<key>
--   cell:<key>         string  the meter of a limit that is given with the call
--   changes            string  how many changes of limits and meters there were
--   wake               channel words to the process that gives turns
--   admitted:<caller>  string  the number of a caller's last call that was allowed
--   jobs               hash    job -> its ticket, costs, lane
--   seq                string  the last number given
--   demand             hash    meter -> permits wanted by all that wait or are called
--   reserved           hash    meter -> permits reserved for called jobs
--   lane:<lane>        zset    waiting jobs by ticket
--   called:<lane>      zset    called jobs by the microsecond until which permits are reserved
--   lanes              zset    lanes by number
--   tickets            hash    lane -> the last ticket given
--   contended          hash    meter -> number of the last lane that marked it
--   sharing            hash    meter -> how many lanes take turns there
--   patience           zset    jobs by the microsecond at which they must have run
--   turns              string  the process that gives turns
--   epoch              string  set once; gone where Redis has lost its data
--   at                 hash    lane -> the meter that it waits on
--   q:<meter>          zset    lanes that wait on a meter, by turn
--   due                zset    meters by when the pump should look at them
--   grants             zset    called jobs by the microsecond until which permits are kept
--   limbo              zset    called jobs that did not come
--   pump               string  the process that pumps
local function hg(name, of)
  if of then return P .. name .. ':' .. of end
  return P .. name
end

-- The leases of a concurrency meter: ZSETs of holders, each with the microsecond
-- its lease ends. One who holds 5 permits stands in those of 1 and of 4, so any
-- cost is a few members, and what is held a few counts. All but the first exist
-- only where a lease of several permits was given: a mark beside them says so.
local function lease_sets(state)
  local sets = { state }
  if call('EXISTS', state .. '\n') == 1 then
    for i = 1, 23 do sets[i + 1] = state .. '\n' .. int(i) end
  end
  return sets
end

-- How many permits a holder holds and until when; 0 if its lease has ended.
local function held_by(state, holder)
  local sets = lease_sets(state)
  local held, worth, until_us = 0, 1, 0
  for i = 1, #sets do
    local ends = tonumber(call('ZSCORE', sets[i], holder) or 0)
    if ends > now_us then held, until_us = held + worth, ends end
    worth = worth * 2
  end
  return held, until_us
end

-- Has a holder hold k permits until a moment, and nothing else; k = 0 gives back
-- what it holds. Leases that have ended go a grace later, a hundred at a time.
-- Returns when the last lease ends.
local function hold(state, holder, k, until_us)
  if k > 1 then call('SET', state .. '\n', '1') end
  local sets, last = lease_sets(state), now_us
  for i = 1, #sets do
    local bit = k % 2
    k = (k - bit) / 2
    if bit == 1 then call('ZADD', sets[i], int(until_us), holder) else call('ZREM', sets[i], holder) end
    local late = call('ZCOUNT', sets[i], '-inf', int(now_us - GRACE * 1000))
    if late > 0 then call('ZREMRANGEBYRANK', sets[i], 0, late > 100 and 99 or late - 1) end
    local ends = tonumber(call('ZRANGE', sets[i], -1, -1, 'WITHSCORES')[2] or 0)
    if ends > last then last = ends end
  end
  local ttl_ms = int(ceil((last - now_us) / 1000) + GRACE)
  for i = 1, #sets do call('PEXPIRE', sets[i], ttl_ms) end
  if #sets > 1 then call('PEXPIRE', state .. '\n', ttl_ms) end
  return last
end
local holder = ARGV[1]

local kept = 1
for i = 2, #ARGV, 3 do
  local kind, lease_us = unpack(call('HMGET', hg('limit', ARGV[i]), 'kind', 'lease_us'))
  if kind == 'concurrency' then
    local state = hg('m', 'concurrency:' .. ARGV[i] .. '|' .. ARGV[i + 1])
    local held = held_by(state, holder)
    if held > 0 then hold(state, holder, held, now_us + tonumber(lease_us)) else kept = 0 end
  end
end
return kept
