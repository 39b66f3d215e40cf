-- @include scope

-- A sliding log: at most n permits in every window of one period, exactly.
-- State: LIST of the times of the last n permits, oldest first. A k-th permit
-- exists once the (n-k+1)-th newest time is a whole period old.
local function sliding_log(m, now_us)
  local n, period_us = m.n, m.period_us

  local function newest(i)
    local at = call('LINDEX', m.state, -i)
    return at and tonumber(at)
  end

  m.windowed = true
  function m.ready_at(k)
    if k == 0 then return now_us end
    local within = (k - 1) % n + 1
    local rounds = (k - within) / n
    local at = newest(n - within + 1)
    at = at and at + period_us or now_us
    return math.min((at > now_us and at or now_us) + rounds * period_us, FAR)
  end

  local function keep() call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + GRACE + (m.longer_ms or 0))) end

  function m.take(k)
    local last = newest(1)
    local at = last and last > now_us and last or now_us
    local text = int(at)
    while k > 0 do
      local batch = {}
      for i = 1, math.min(k, 1000) do batch[i] = text end
      call('RPUSH', m.state, unpack(batch))
      k = k - #batch
    end
    call('LTRIM', m.state, -n, -1)
    keep()
    return at
  end

  -- Times are in order, so the first that still counts is found by halving.
  function m.left()
    local length = call('LLEN', m.state)
    local low, high = 0, length
    while low < high do
      local middle = floor((low + high) / 2)
      if tonumber(call('LINDEX', m.state, middle)) + period_us > now_us then high = middle else low = middle + 1 end
    end
    local left = n - (length - low)
    return left > 0 and left or 0
  end

  function m.full_at()
    local last = newest(1)
    return last and last + period_us > now_us and last + period_us or now_us
  end

  return keep
end
