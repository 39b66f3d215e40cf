-- @include scope

-- Returns k·period/n as whole microseconds, at most MAX_INT, and the rest in n-ths of one.
local function span(k, n, period_us)
  local rest = period_us % n
  local parts = k * rest
  local fraction = parts % n
  local us = k * ((period_us - rest) / n) + (parts - fraction) / n
  if us >= MAX_INT then return MAX_INT, 0 end
  return us, fraction
end

-- The inverse of span: returns the number of permits whose span is the given time, rounded up.
local function permits_of(us, fraction, n, period_us)
  local parts = us * n + fraction
  if parts < MAX_INT then
    local over = parts % period_us
    return (parts - over) / period_us + (over > 0 and 1 or 0)
  end
  local k = floor(parts / period_us) -- an estimate, because numbers above MAX_INT are not exact
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

-- Returns the number of a born_us, see gcra. fast_path.lua writes seconds, a point and microseconds
-- without leading zeros, because that takes less time.
local function parse_born(text)
  local seconds, us = string.match(text, '^(%d+)%.(%d+)$')
  return seconds and seconds * 1000000 + us or tonumber(text) or now_us
end

-- A funnel or a token bucket, as GCRA. A permit becomes free every period/n. Each permit moves the
-- theoretical arrival time (TAT) by period/n, to at most capacity·period/n ahead of now. The TAT is
-- stored as whole microseconds and a fraction in n-ths of a microsecond, so no rounding adds up.
-- State: "born_us tat fraction n period_us [given begins_us [group_start group_end group_idle]]".
-- born_us is the time of the first call after all permits were free, or after the state was lost:
-- permits that were taken earlier cannot be given back. The field `given` is the number of permits
-- that calls have given back since then. begins_us is the latest start of a call that took permits
-- in advance, 0 if that start has passed. The last three fields are about the calls that gave
-- permits back last: see charge.lua. Data of version 8 have no born_us. After a reset, the state is
-- only the first born_us that is valid.
local function gcra(m, now_us)
  local n, period_us, capacity = m.n, m.period_us, m.capacity
  local born_us, tat, fraction, given, begins_us, group = now_us, 0, 0, 0, 0, ''
  local state = call('GET', m.state)
  if state then
    local born, at, part, rate = string.match(state, '^(%S+) (%d+) (%d+) (.+)$')
    if at and #at < 9 then born, at, part, rate = string.match('0 ' .. state, '^(%S+) (%d+) (%d+) (.+)$') end -- version 8
    born_us, tat, fraction = born and parse_born(born) or 0, tonumber(at) or 0, tonumber(part) or 0
    if rate ~= m.rate then
      local was, back, begins, times = string.match(rate or '', '^([1-9]%d* [1-9]%d*) ?(%d*) ?(%d*)([%d ]*)$')
      given, begins_us, group = tonumber(back) or 0, tonumber(begins) or 0, was == m.rate and times or ''
      if not was then
        tat, fraction = 0, 0 -- corrupt data
      elseif was ~= m.rate then
        -- @include convert_tat
        tat, fraction = convert_tat(m, tat, fraction, was)
        born_us, given = math.max(born_us, now_us), 0
      end
    end
    if not at then
      born_us = tonumber(string.match(state, '^%d+$') or nil) or 0
      state = false
    end
  end

  -- Begins the state anew if all permits are free at a time.
  local function begin(at)
    if tat >= at then return end
    tat, fraction, given, group = at, 0, 0, ''
    if now_us > born_us then born_us = now_us end
  end
  begin(now_us)
  if tat >= MAX_INT then tat, fraction = MAX_INT, 0 end
  m.allows_advance = true

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
    if at >= MAX_INT then return MAX_INT end
    return at > now_us and at or now_us
  end

  -- Takes k permits for a call that begins now, or at the later time `at`. A nil k only stores the
  -- state again. While m.deferred is set, take leaves the storing to store_taken, because later
  -- calls of the same script can take permits, too. Returns mark and given, see charge.lua.
  function m.take(k, at)
    local us, over = span(k or 0, n, period_us)
    if at then begin(at) end -- the TAT is at least the start of the call
    tat, fraction = tat + us, fraction + over
    if fraction >= n then tat, fraction = tat + 1, fraction - n end
    if tat >= MAX_INT then tat, fraction = MAX_INT, 0 end
    if at and at > begins_us then begins_us = at end
    if m.deferred then
      m.deferred = 'taken'
      return tat, given
    end
    local lasts_us = tat - now_us
    local text = int(born_us) .. ' ' .. int(tat) .. ' ' .. int(fraction) .. ' ' .. m.rate
    local begins = begins_us > now_us and begins_us or 0
    if given > 0 or begins > 0 or group ~= '' then text = text .. ' ' .. int(given) .. ' ' .. int(begins) .. group end
    local ttl_ms = ceil(lasts_us / 1000) + GRACE_MS
    call('SET', m.state, text, 'PX', int(ttl_ms))
    return tat, given
  end

  function m.left()
    local left = capacity - permits_of(tat - now_us, fraction, n, period_us)
    return left > 0 and left or 0
  end

  function m.full_at() return fraction > 0 and tat + 1 or tat end

  return state and m.take
end
