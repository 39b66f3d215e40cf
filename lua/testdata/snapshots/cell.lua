-- redis-cell's CL.THROTTLE: a funnel that is given with the call.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] key
-- ARGV[2] capacity, max_burst + 1
-- ARGV[3] count of permits per period
-- ARGV[4] period in microseconds
-- ARGV[5] quantity to take; 0 looks
-- Returns {outcome, now_us, ready_at_us, left, full_at_us}
-- What every script starts with: the scope's key prefix and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- The only way a number becomes text: tostring would keep 14 digits of 16.
local function int(x) return string.format('%.0f', x) end
-- A funnel or a token bucket: GCRA with the theoretical arrival time (TAT) kept
-- as whole microseconds plus a fraction in 1/n of one, so that nothing drifts.
-- State: "tat fraction n period_us". n permits per period, at most capacity at
-- once: a permit every period/n, and TAT may run capacity·period/n ahead.

-- The time that k permits stand for: whole microseconds, and n-ths of one.
local function span(k, n, period_us)
  local rest = period_us % n
  local parts = k * rest
  local fraction = parts % n
  return k * ((period_us - rest) / n) + (parts - fraction) / n, fraction
end

local function gcra(m)
  local n, period_us, capacity = m.n, m.period_us, m.capacity
  local tat, fraction = now_us, 0
  local state = call('GET', m.state)
  if state then
    local was_tat, was_fraction, was_n, was_period = string.match(state, '^(%d+) (%d+) (%d+) (%d+)$')
    was_tat, was_fraction = tonumber(was_tat), tonumber(was_fraction)
    if was_tat >= now_us then
      tat, fraction = was_tat, was_fraction
      was_n, was_period = tonumber(was_n), tonumber(was_period)
      if was_n ~= n or was_period ~= period_us then
        -- The rate was changed: what was owed at that moment in permits stays,
        -- rounded up, and leaks at the new rate from then on.
        local since_us = m.limit and tonumber(call('HGET', m.limit, 'since_us')) or now_us
        if since_us > now_us then since_us = now_us end
        local debt = tat - since_us
        local owed = floor(debt * was_n / was_period)
        local us, over = span(owed, was_n, was_period)
        while owed > 0 and (us > debt or (us == debt and over > fraction)) do
          owed = owed - 1
          us, over = span(owed, was_n, was_period)
        end
        while us < debt or (us == debt and over < fraction) do
          owed = owed + 1
          us, over = span(owed, was_n, was_period)
        end
        us, fraction = span(owed, n, period_us)
        tat = since_us + us
        if tat < now_us then tat, fraction = now_us, 0 end
      end
    end
  end

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
    return at > now_us and at or now_us
  end

  function m.take(k)
    local us, over = span(k, n, period_us)
    tat, fraction = tat + us, fraction + over
    if fraction >= n then tat, fraction = tat + 1, fraction - n end
    local ttl_ms = ceil((tat - now_us) / 1000) + 1000
    call('SET', m.state, string.format('%.0f %.0f %.0f %.0f', tat, fraction, n, period_us), 'PX', int(ttl_ms))
  end

  function m.left()
    local k = floor(capacity - (tat - now_us) * n / period_us)
    if k < 0 then k = 0 end
    while k < capacity and m.ready_at(k + 1) <= now_us do k = k + 1 end
    while k > 0 and m.ready_at(k) > now_us do k = k - 1 end
    return k
  end

  function m.full_at()
    return fraction > 0 and tat + 1 or tat
  end
end
local key, capacity, n, period_us, quantity = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local m = { state = P .. 'cell:' .. key, n = n, period_us = period_us, capacity = capacity }
gcra(m)
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
