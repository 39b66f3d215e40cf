-- @include scope

-- A sliding log: never more than n permits in a window of one period. k permits, at most n, are
-- free when the (n-k+1)-th newest time is a period old. Each n permits more take one more period.
-- State: LIST of the times of the last permits, oldest first. m.take keeps the newest n times.
local function sliding_log(m, now_us)
  local n, period_us = m.n, m.period_us
  local length = call('LLEN', m.state)
  local last -- the newest time; nil before newest() has read it, 0 if the log is empty

  local function newest()
    last = last or tonumber(call('LINDEX', m.state, -1) or nil) or 0
    return last
  end

  m.windowed = true
  function m.ready_at(k)
    if k == 0 then return now_us end
    local rest = (k - 1) % n + 1
    local full_periods = (k - rest) / n
    local at = n - rest < length and (tonumber(call('LINDEX', m.state, rest - n - 1) or nil) or 0) + period_us or now_us
    return math.min((at > now_us and at or now_us) + full_periods * period_us, MAX_INT)
  end

  local function store_state()
    last = nil
    call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + GRACE_MS))
  end

  function m.take(k)
    local at = newest() > now_us and last or now_us
    local text, remaining = int(at), k - 1
    call('RPUSH', m.state, text)
    while remaining > 0 do
      local batch = {}
      for i = 1, math.min(remaining, 1000) do batch[i] = text end
      call('RPUSH', m.state, unpack(batch))
      remaining = remaining - #batch
    end
    last, length = at, length + k
    if length > n then
      call('LTRIM', m.state, -n, -1)
      length = n
    end
    call('PEXPIRE', m.state, int(ceil((at + period_us - now_us) / 1000) + GRACE_MS))
    return at
  end

  -- Returns the number of free permits. A binary search finds the oldest time that still counts. It
  -- tries the oldest time first, because often all permits are in use.
  function m.left()
    local low, high, middle = 0, length, 0
    while low < high do
      if (tonumber(call('LINDEX', m.state, middle) or nil) or 0) + period_us > now_us then high = middle else low = middle + 1 end
      middle = floor((low + high) / 2)
    end
    local left = n - (length - low)
    return left > 0 and left or 0
  end

  function m.full_at()
    local at = newest() + period_us
    return last > 0 and at > now_us and at or now_us
  end

  return store_state
end
