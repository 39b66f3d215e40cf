-- @include limits

-- Returns the margin, and a function starts(at, i), which returns the start of the i-th window
-- after the window that contains `at`. Windows start at offset_us plus multiples of the period.
-- Windows of a calendar start at the times in `edges`, which Go computes. If `at` is outside of
-- these times, starts sets m.stale, and assumes that each window lasts a period.
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
-- start and closes margin_us before its end. So the upstream counts a call in the same window as
-- this meter does, even if the call arrives late or the clocks differ.
-- State: "last count born_us": the time of the last permit, the number of permits in its window, and
-- the time of the first permit in its window, or after the state was lost: permits that were taken
-- earlier cannot be given back. Data of version 8 have no born_us. After a reset, the state is only
-- the first born_us that is valid. The count is valid while `last` lies in the present window. If
-- `last` is in the future, the clock has stepped back, and the meter uses `last` instead of the
-- clock's time.
local function fixed_window(m, now_us)
  local n = m.n
  local margin_us, starts = window_starts(m)
  if m.incomplete then return end
  local last, count, born_us = 0, 0, 0
  local state = call('GET', m.state)
  if state then
    last, count, born_us = string.match(state, '^(%d+) (%d+) ?(%d*)$')
    if not last then born_us = string.match(state, '^%d+$') end
    last, count, born_us = tonumber(last) or 0, tonumber(count) or 0, tonumber(born_us or nil) or 0
  end
  local at = last > now_us and last or now_us
  local start = starts(at, 0)
  local taken = last < start and 0 or count -- count stays, because the clock may step back to its window
  local open, closed = start + margin_us, margin_us > 0 and at >= starts(at, 1) - margin_us

  -- Returns the first time from `from` on at which a window is open.
  local function open_from(from)
    local stale = m.stale -- m.stale concerns the present window only
    local opens, closes = starts(from, 0) + margin_us, starts(from, 1) - margin_us
    m.stale = stale
    if from < opens then return opens end
    return from < closes and from or closes + 2 * margin_us
  end

  m.windowed, m.may_close = true, margin_us > 0
  function m.ready_at(k, from)
    if k == 0 then return now_us end
    local ready, spare = open, n > taken and not closed and n - taken or 0
    if k > spare then ready = starts(at, ceil((k - spare) / n)) + margin_us end
    if ready < now_us then ready = now_us end
    if from and ready < from and from < MAX_INT then ready = open_from(from) end
    return ready < MAX_INT and ready or MAX_INT
  end

  local function store_state()
    local ttl_ms = ceil((starts(at, 1) - now_us) / 1000) + GRACE_MS
    call('SET', m.state, int(last) .. ' ' .. int(count) .. ' ' .. int(born_us), 'PX', int(ttl_ms))
  end

  function m.take(k)
    if last < start and now_us > born_us then born_us = now_us end
    last, taken = at, taken + k
    count = taken
    store_state()
    return at
  end

  function m.left() return open <= now_us and not closed and n > taken and n - taken or 0 end

  function m.full_at() return taken > 0 and starts(at, 1) or now_us end

  return store_state
end
