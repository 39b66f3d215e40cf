-- @include scope

-- What a limit has beside its summary: whether it is paused, and until when the
-- meter is shut, if an upstream's answer shut it. Returns nil where the limit is
-- not for the app.
local function load_rest(name, key, app)
  local apps, paused, blocked_us = unpack(call('HMGET', hg('limit', name), 'apps', 'paused', 'blocked_us'))
  if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
    return nil
  end
  local ends
  if blocked_us and tonumber(blocked_us) > now_us then
    ends = tonumber(call('ZSCORE', hg('blocked', name), key) or 0)
    ends = ends > now_us and ends or nil
  end
  return paused and true or false, ends
end

-- Shuts a meter that is paused, or blocked until a moment. While a limit is
-- paused who asks is told to look again in a minute.
local function shut(m, paused, ends)
  m.shut, m.known = true, not paused and m.known
  local ready_at = m.ready_at
  m.left = function() return 0 end
  m.ready_at = function(k)
    local at = paused and now_us + 60000000 or ready_at(k)
    return ends and ends > at and ends or at
  end
end

-- Returns the meter of a limit and a key, or nil where the limit does not exist
-- for this app. A meter answers: ready_at(k), the earliest microsecond at which
-- k more permits may be taken (k above the capacity: an estimate for those who
-- wait), left(), full_at(), when it is as if never used, and worth_us(k), how
-- long k permits take to come again. take(k) takes them, keep() stores what is
-- there once more; nothing else changes it.
-- known is whether anybody knows when permits come back; shut, whether the limit
-- is paused or the meter blocked; stale, whether Go must extend its calendar.
-- The file of a kind stands in its branch, so that no call makes the functions
-- of kinds that it does not use.
local function load_meter(name, key, app, holder)
  local summary = call('HGET', hg('limit', name), 'summary')
  if not summary then return nil end
  local kind, rate, n, period_us, capacity, rest = string.match(summary, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
  local paused, ends = false, nil
  if rest ~= '' then paused, ends = load_rest(name, key, app) end
  if paused == nil then return nil end

  local id = name .. '|' .. key
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, state = hg('m', kind .. ':' .. id), holder = holder, known = true, shut = false,
    n = tonumber(n), period_us = tonumber(period_us), capacity = tonumber(capacity), rate = rate, index = 0, cost = 0, reserved = 0,
    ready_at = false, take = false, keep = false, left = false, full_at = false, worth_us = false,
  }
  function m.worth_us(k) return math.min(ceil(k * m.period_us / m.n), FAR) end
  if kind == 'funnel' or kind == 'token_bucket' then
    -- @include gcra
    gcra(m, now_us)
  elseif kind == 'sliding_log' then
    -- @include sliding_log
    sliding_log(m, now_us)
  elseif kind == 'sliding_window' then
    -- @include sliding_window
    sliding_window(m, now_us)
  elseif kind == 'fixed_window' then
    -- @include fixed_window
    fixed_window(m, now_us)
  else
    -- @include concurrency
    concurrency(m, now_us)
  end

  if paused or ends then shut(m, paused, ends) end
  return m
end
