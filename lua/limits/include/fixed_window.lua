-- @include limits

-- The boundaries of a limit's windows: multiples of the period, or for a calendar the list `edges`
-- that Go computed, from which Redis's clock chooses here. Beyond the list windows count as a
-- period long.
-- Returns the margin, and a function that returns the start of the i-th window after the one which
-- holds a time. If the list ends there, the meter is stale.
local function window_starts(m)
  local limit = limits[m.name] or {}
  limit.windows = limit.windows or call('HMGET', hg('limit', m.name), 'margin_us', 'offset_us', 'edges')
  local margin_us, offset_us, stored = tonumber(limit.windows[1] or nil), tonumber(limit.windows[2] or nil), limit.windows[3]
  if not margin_us or not offset_us then
    m.incomplete = true
    return
  end
  if not stored then
    return margin_us, function(at, i) return at - (at - offset_us) % m.period_us + i * m.period_us end
  end
  local edges = {}
  for edge in string.gmatch(stored, '%d+') do edges[#edges + 1] = tonumber(edge) end
  return margin_us, function(at, i)
    local index = 0
    while edges[index + 1] and edges[index + 1] <= at do index = index + 1 end
    if index == 0 or index == #edges then m.stale = true end
    local last = edges[#edges] or at
    if index == #edges then return at - (at - last) % m.period_us + i * m.period_us end
    if i == 0 then return edges[index] or at end
    return edges[index + i] or last + (index + i - #edges) * m.period_us
  end
end

-- A fixed window: at most n permits in each aligned period. A window opens margin_us after its
-- start and closes as much before its end, so that no call arrives in another window than it was
-- counted in.
-- State: "last count": when the last permit was taken, and how many were in its window. They count
-- as long as the last of them lies in the present window, however the windows have changed. A time
-- in the future means that the clock stepped back; a meter's own time does not.
local function fixed_window(m, now_us)
  local n = m.n
  local margin_us, starts = window_starts(m)
  if m.incomplete then return end
  local last, count = 0, 0
  local state = call('GET', m.state)
  if state then
    last, count = string.match(state, '^(%d+) (%d+)$')
    last, count = tonumber(last) or 0, tonumber(count) or 0
  end
  local at = last > now_us and last or now_us
  local start = starts(at, 0)
  if last < start then count = 0 end
  local open, closed = start + margin_us, margin_us > 0 and at >= starts(at, 1) - margin_us

  -- Returns the first time, not before from, at which a window is open.
  local function open_from(from)
    local stale = m.stale -- only the present window decides that
    local opens, closes = starts(from, 0) + margin_us, starts(from, 1) - margin_us
    m.stale = stale
    if from < opens then return opens end
    return from < closes and from or closes + 2 * margin_us
  end

  m.windowed, m.may_close = true, margin_us > 0
  function m.ready_at(k, from)
    if k == 0 then return now_us end
    local ready, spare = open, n > count and not closed and n - count or 0
    if k > spare then ready = starts(at, ceil((k - spare) / n)) + margin_us end
    if ready < now_us then ready = now_us end
    if from and ready < from and from < MAX_INT then ready = open_from(from) end
    return ready < MAX_INT and ready or MAX_INT
  end

  local function store_state()
    local ttl_ms = ceil((starts(at, 1) - now_us) / 1000) + GRACE_MS + (m.extra_ttl_ms or 0)
    call('SET', m.state, int(last) .. ' ' .. int(count), 'PX', int(ttl_ms))
  end

  function m.take(k)
    last, count = at, count + k
    store_state()
    return at
  end

  function m.left() return open <= now_us and not closed and n > count and n - count or 0 end

  function m.full_at() return count > 0 and starts(at, 1) or now_us end

  return store_state
end
