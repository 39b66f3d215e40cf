-- redis-cell's CL.THROTTLE: a funnel that is given with the call.
-- Touches: cell (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] key
-- ARGV[2] capacity, max_burst + 1
-- ARGV[3] count of permits per period
-- ARGV[4] period in microseconds
-- ARGV[5] quantity to take; 0 looks
-- Returns {outcome, now_us, ready_at_us, left, full_at_us}
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

-- The time that k permits stand for: whole microseconds, and n-ths of one. It
-- ends at FAR.
local function span(k, n, period_us)
  local rest = period_us % n
  local parts = k * rest
  local fraction = parts % n
  local us = k * ((period_us - rest) / n) + (parts - fraction) / n
  if us >= FAR then return FAR, 0 end
  return us, fraction
end

-- How many permits a time stands for, the inverse of span, rounded up.
local function owed(us, fraction, n, period_us)
  local parts = us * n + fraction
  if parts < FAR then
    local over = parts % period_us
    return (parts - over) / period_us + (over > 0 and 1 or 0)
  end
  local k = floor(parts / period_us) -- near it, where numbers are not exact
  local at, over = span(k, n, period_us)
  while k > 0 and (at > us or (at == us and over >= fraction)) do
    k = k - 1
    at, over = span(k, n, period_us)
  end
  while at < us or (at == us and over < fraction) do
    k = k + 1
    at, over = span(k, n, period_us)
  end
  return k
end

-- What a meter's state says: TAT, and n-ths of a microsecond. After a change of
-- the rate what was owed at that moment in permits stays, rounded up, and leaks
-- at the new rate from then on.
local function arrival(m)
  local state = call('GET', m.state)
  if not state then return 0, 0 end
  local tat, fraction, rate = string.match(state, '^(%d+) (%d+) (.+)$')
  tat, fraction = tonumber(tat), tonumber(fraction)
  if rate == m.rate then return tat, fraction end
  local since_us = m.name and tonumber(call('HGET', hg('limit', m.name), 'since_us')) or now_us
  if tat <= since_us then return 0, 0 end
  local n, period_us = string.match(rate, '^(%d+) (%d+)$')
  local us, over = span(owed(tat - since_us, fraction, tonumber(n), tonumber(period_us)), m.n, m.period_us)
  return since_us + us, over
end

-- A funnel or a token bucket: GCRA with the theoretical arrival time (TAT) kept
-- as whole microseconds plus a fraction in 1/n of one, so that nothing drifts.
-- State: "tat fraction n period_us". n permits per period, at most capacity at
-- once: a permit every period/n, and TAT may run capacity·period/n ahead.
local function gcra(m, now_us)
  local n, period_us, capacity = m.n, m.period_us, m.capacity
  local tat, fraction = arrival(m)
  if tat < now_us then tat, fraction = now_us, 0 end
  if tat >= FAR then tat, fraction = FAR, 0 end

  function m.ready_at(k)
    if k == 0 then return now_us end
    local at
    if k <= capacity then
      local us, over = span(capacity - k, n, period_us)
      at = tat - us
      if fraction > over then at = at + 1 end
    else
      local us, over = span(k - capacity, n, period_us)
      at = tat + us + ceil((fraction + over) / n)
    end
    if at >= FAR then return FAR end
    return at > now_us and at or now_us
  end

  function m.keep()
    local ttl_ms = ceil((tat - now_us) / 1000) + GRACE
    call('SET', m.state, string.format('%.0f %.0f ', tat, fraction) .. m.rate, 'PX', int(ttl_ms))
  end

  function m.take(k)
    local us, over = span(k, n, period_us)
    tat, fraction = tat + us, fraction + over
    if fraction >= n then tat, fraction = tat + 1, fraction - n end
    if tat >= FAR then tat, fraction = FAR, 0 end
    m.keep()
  end

  function m.left()
    local left = capacity - owed(tat - now_us, fraction, n, period_us)
    return left > 0 and left or 0
  end

  function m.full_at() return fraction > 0 and tat + 1 or tat end
end
local key, capacity, n, period_us, quantity = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local m = { state = hg('cell', key), n = n, period_us = period_us, capacity = capacity, rate = int(n) .. ' ' .. int(period_us) }
gcra(m, now_us)
local outcome = 1
local at = m.ready_at(quantity)
if quantity > capacity then
  outcome, at = 3, now_us
elseif at > now_us then
  outcome = 2
elseif quantity > 0 then
  m.take(quantity)
end
return { outcome, now_us, at, m.left(), m.full_at() }
