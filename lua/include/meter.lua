-- @include scope

-- A meter answers: ready_at(k), the earliest microsecond at which k more permits
-- may be taken (k above the capacity: an estimate for those who wait), left(),
-- and full_at(), when it is as if never used. take(k) takes them. Nothing but
-- take changes it. Where m.guess is true nobody knows when permits come back.
-- Returns nil where the limit does not exist for this app. The file of a kind
-- stands in its branch, where m is the meter, so that no call makes the functions
-- of kinds that it does not use.
local function load_meter(name, key, app, holder)
  local limit = P .. 'limit:' .. name
  local gist = call('HGET', limit, 'gist')
  if not gist then return nil end
  local kind, rate, n, period_us, capacity, rest = string.match(gist, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
  local paused
  if rest ~= '' then
    local apps
    apps, paused = unpack(call('HMGET', limit, 'apps', 'paused'))
    if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
      return nil
    end
  end

  local id = name .. '|' .. key
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, limit = limit, state = P .. 'm:' .. kind .. ':' .. id, holder = holder,
    n = tonumber(n), period_us = tonumber(period_us), capacity = tonumber(capacity), rate = rate,
    index = 0, cost = 0, others = 0, ready_at = false, take = false, left = false, full_at = false,
  }
  if kind == 'funnel' or kind == 'token_bucket' then
    -- @include gcra
  elseif kind == 'sliding_log' then
    -- @include sliding_log
  elseif kind == 'sliding_window' then
    -- @include sliding_window
  elseif kind == 'fixed_window' then
    -- @include fixed_window
  else
    m.guess = true
    -- @include concurrency
  end

  m.known = not m.guess
  function m.worth_us(k) return m.lease_us or ceil(k * m.period_us / m.n) end
  if paused then
    m.shut, m.known = true, false
    m.guess = true
    m.ready_at = function() return now_us + 60000000 end
    m.left = function() return 0 end
  end
  return m
end

-- Holds the meter shut until its block ends, if an upstream's answer set one.
local function apply_block(m)
  local ends = call('HGET', P .. 'blocked', m.id)
  ends = ends and tonumber(ends)
  if not ends or ends <= now_us then return end
  local ready_at = m.ready_at
  m.ready_at = function(k)
    local at = ready_at(k)
    return at > ends and at or ends
  end
  m.left = function() return 0 end
  m.shut = true
end
