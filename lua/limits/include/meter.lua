-- @include limits

-- Returns the meter of a limit and a key, and a function that stores the meter's state again with
-- a new expiry. A concurrency meter has no such function. Returns nil if the limit does not exist
-- or its definition is incomplete, and nil and true if the limit is for other apps. A malformed
-- state counts as unused. A meter has these functions
--   ready_at(k, from)  first time at which k more permits are free, Unix microseconds; an estimate
--                      if k is above the capacity. A meter that can close returns no time before
--                      `from`, if `from` is given
--   take(k, at)        takes k permits, and returns their mark: see charge.lua
--   left()             number of free permits
--   full_at()          time at which all permits of the meter are free again
-- and fields:
--   known            the script can compute when permits become free
--   windowed         a window counts the permits, and frees them when it has passed
--   closed           the limit is paused, or the key is blocked
--   may_close        the meter can close again after it is ready
--   stale            Go must extend the limit's calendar
--   apps             the limit is only for some apps
--   wants_feedback   the limiter must report the results of calls
--   allows_advance   a call can take permits that are not free yet, if it begins when they are free
-- Each kind is included in a branch, so that a call creates only the functions that it uses.
local function load_meter(name, key, app, holder)
  local limit = limits[name]
  if not limit then
    local summary = name and call('HGET', hg('summaries'), name) -- corrupt data may have no name
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
  local paused, apps, ends, record, margin_us, adapts = false, nil, nil, nil, nil, nil
  if limit.more then
    local blocked_us, overrides
    apps, paused, blocked_us, overrides, margin_us, adapts =
      unpack(call('HMGET', hg('limit', name), 'apps', 'paused', 'blocked_us', 'overrides', 'margin_us', 'adapt_latency_us'))
    if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
      return nil, true
    end
    if (tonumber(blocked_us or nil) or 0) > now_us then -- the latest block of any key has not ended
      ends = math.min(tonumber(call('ZSCORE', hg('blocked', name), key) or nil) or 0, MAX_INT)
      ends = ends > now_us and ends or nil
    end
    record = overrides and call('HGET', hg('overrides', name), key)
  end

  local id = name .. '|' .. key
  local m = { -- all fields at once, so that the table is created in its full size
    id = id, name = name, kind = kind, state = hg('m', kind .. ':' .. id), known = true, windowed = false, lanes = false, deferred = false, reserved_version = false, granted = 0,
    n = limit.n, period_us = limit.period_us, capacity = limit.capacity, rate = limit.rate, index = 0, cost = 0, reserved = 0, allows_advance = false,
    wanted = 0, may_close = false, incomplete = false, ready_at = false, take = false, left = false, full_at = false,
  }
  if record then
    -- @include override
    override(m, kind, record, tonumber(margin_us or nil) or 0, adapts)
  end
  if apps then m.apps = apps end
  if adapts and adapts ~= '0' then m.wants_feedback = true end
  local store_state = limit.load(m, now_us, holder)
  if m.incomplete then return nil end

  -- While a limit is paused, ready_at returns a time in a minute, so that callers ask again. No
  -- call takes permits of a closed meter in advance, so that none begins before it opens.
  if paused or ends then
    m.closed, m.known, m.allows_advance = true, not paused and m.known, false
    local ready_at = m.ready_at
    m.open_left = m.left -- permits that would be free if the meter were open
    m.left = function() return 0 end
    m.ready_at = function(k, from)
      local at = math.max(paused and now_us + 60000000 or now_us, ends or 0, from or 0)
      return paused and at or math.max(ready_at(k, at), at)
    end
  end
  return m, store_state
end
