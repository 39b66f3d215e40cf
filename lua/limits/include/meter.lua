-- @include limits

-- Returns the meter of a limit and a key, or nil if there is no such limit or its definition lacks
-- what the meter needs; and true if the limit is for other apps. The second result of a meter is
-- a function that stores its state again, for as long as it matters now. A state that no script
-- has written counts as unused. `at` looks at the meter as of a later time, if nothing is taken
-- before. A meter has ready_at(k, from), the earliest microsecond, not before from if the meter
-- `closes` again, at which k more permits may be taken (k above the capacity: an estimate for
-- waiting jobs); left(); full_at(), when it is as if never used; and take(k), which takes permits
-- and returns their mark: see charge.lua. known: whether it is known when permits come back;
-- windowed: whether they come back by periods; closed: whether the limit is paused or the meter
-- blocked; stale: whether Go must extend its calendar; wants_feedback: whether the limiter wants
-- to know how calls go; early: whether a call that begins when its permits exist may take them
-- before. What only some meters need stands in its branch, so that no call makes functions that
-- it does not use.
local function load_meter(name, key, app, holder, at)
  local limit = limits[name]
  if not limit then
    local summary = name and call('HGET', hg('summaries'), name) -- edited data may have no name
    if not summary then return nil end
    local kind, rate, n, period_us, capacity, rest = string.match(summary, '^(%l[%l_]+) (([1-9]%d*) (%d+)) ([1-9]%d*)(.*)$')
    if not kind or period_us == '0' and kind ~= 'concurrency' then return nil end
    limit = { kind = kind, rate = rate, n = n + 0, period_us = period_us + 0, capacity = capacity + 0, more = rest ~= '', load = false }
    if kind == 'funnel' or kind == 'token_bucket' then
      -- @include gcra
      limit.load = gcra
    elseif kind == 'sliding_log' then
      -- @include sliding_log
      limit.load = sliding_log
    elseif kind == 'sliding_window' then
      -- @include sliding_window
      limit.load = sliding_window
    elseif kind == 'fixed_window' then
      -- @include fixed_window
      limit.load = fixed_window
    else
      -- @include concurrency
      limit.load = concurrency
    end
    limits[name] = limit
  end
  local kind = limit.kind
  local paused, ends, record, margin_us, adapts = false, nil, nil, nil, nil
  if limit.more then
    local apps, blocked_us, overrides
    apps, paused, blocked_us, overrides, margin_us, adapts =
      unpack(call('HMGET', hg('limit', name), 'apps', 'paused', 'blocked_us', 'overrides', 'margin_us', 'adapt_latency_us'))
    if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
      return nil, true
    end
    if (tonumber(blocked_us or nil) or 0) > now_us then -- until when any key of the limit is blocked
      ends = math.min(tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0, MAX_INT)
      ends = ends > now_us and ends or nil
    end
    record = overrides and call('HGET', hg('overrides', name), key)
  end
  local now_us = at or now_us

  local id = name .. '|' .. key
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, kind = kind, state = hg('m', kind .. ':' .. id), known = true, windowed = false, lanes = false, deferred = false, reserved_version = false, granted = 0,
    n = limit.n, period_us = limit.period_us, capacity = limit.capacity, rate = limit.rate, index = 0, cost = 0, reserved = 0, allows_advance = false,
    wanted = 0, may_close = false, incomplete = false, ready_at = false, take = false, left = false, full_at = false,
  }
  if record then
    -- @include override
    override(m, kind, record, tonumber(margin_us or nil) or 0, now_us, adapts)
  end
  if adapts and adapts ~= '0' then m.wants_feedback = true end
  local store_state = limit.load(m, now_us, holder)
  if m.incomplete then return nil end

  -- While a limit is paused, callers are told to look again in a minute. Nothing is taken in
  -- advance: it would come back from then on, and not from when the meter opens.
  if paused or ends then
    m.closed, m.known, m.allows_advance = true, not paused and m.known, false
    local ready_at = m.ready_at
    m.open_left = m.left -- what left would be if it were open
    m.left = function() return 0 end
    m.ready_at = function(k, from)
      local at = math.max(paused and now_us + 60000000 or now_us, ends or 0, from or 0)
      return paused and at or math.max(ready_at(k, at), at)
    end
  end
  -- If the key has an override that ends, what would be ready after the end is ready as the limit
  -- itself says.
  if m.ends_us then
    local ready_at, full_at = m.ready_at, m.full_at
    local function after() return (load_meter(name, key, app, holder, m.ends_us)) end
    m.may_close = true
    m.ready_at = function(k, from)
      from = from or now_us
      local at = math.max(ready_at(k, from), from)
      return (paused or at < m.ends_us) and at or math.max(after().ready_at(k, from), from)
    end
    m.full_at = function()
      local at = full_at()
      return at < m.ends_us and at or after().full_at()
    end
  end
  return m, store_state
end
