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

-- How many permits a time stands for, the inverse of span, rounded up.
local function owed(us, fraction, n, period_us)
  local parts = us * n + fraction
  if parts < 9007199254740992 then
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

local n, period_us, capacity, rate = m.n, m.period_us, m.capacity, m.rate
local tat, fraction = now_us, 0
local state = call('GET', m.state)
if state then
  local was_tat, was_fraction, was_rate = string.match(state, '^(%d+) (%d+) (.+)$')
  was_tat = tonumber(was_tat)
  if was_tat >= now_us then
    tat, fraction = was_tat, tonumber(was_fraction)
    if was_rate ~= rate then
      -- The rate was changed: what was owed at that moment in permits stays,
      -- rounded up, and leaks at the new rate from then on.
      local was_n, was_period_us = string.match(was_rate, '^(%d+) (%d+)$')
      local since_us = m.limit and tonumber(call('HGET', m.limit, 'since_us')) or now_us
      if since_us > now_us then since_us = now_us end
      local us
      us, fraction = span(owed(tat - since_us, fraction, tonumber(was_n), tonumber(was_period_us)), n, period_us)
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
  call('SET', m.state, string.format('%.0f %.0f ', tat, fraction) .. rate, 'PX', int(ttl_ms))
end

function m.left()
  local left = capacity - owed(tat - now_us, fraction, n, period_us)
  return left > 0 and left or 0
end

function m.full_at()
  return fraction > 0 and tat + 1 or tat
end
