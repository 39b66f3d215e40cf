-- @include meter

-- The outcomes, numbered as in Go's throttle.Outcome. On STALE, Go extends the calendar and runs
-- the script again, so callers of Go never see this outcome.
local ALLOWED, DENIED, IMPOSSIBLE, NO_LIMIT, EXPIRED, STALE = 1, 2, 3, 4, 5, 6

-- Positions of fields in a reply: see lanes/acquire.lua.
local READY_AT, TIME, FLAG = 4, 8, 9

-- Loads the meters of a call from the triples limit, key, cost in ARGV[first] to ARGV[last]. With a
-- table `loaded`, the calls of a script share their meters there. Meters of concurrency limits are
-- not shared, because they depend on the holder. The states of shared funnels and token buckets are
-- stored once, at the end: see store_taken. `waits` is explained in lanes/acquire.lua. If the call
-- waits for limits that do not exist, missing_meter takes the place of their meters. Returns the
-- meters, or nil and one of these replies:
--   {NO_LIMIT, index, now_us, why}  why: 0 the limit was deleted, 1 Redis lost it, 2 it is
--                                   for other apps
--   {IMPOSSIBLE, index, now_us, 0, left, full_at_us, capacity}
--   {STALE, names of limits, now_us}
local function load_needs(first, last, app, holder, loaded, waits)
  local meters, stale = {}, {}
  for i = first, last, 3 do
    local id = ARGV[i] .. '|' .. ARGV[i + 1]
    local m, other_app = loaded and loaded[id], nil
    if not m then m, other_app = load_meter(ARGV[i], ARGV[i + 1], app, holder) end
    local index = (i - first) / 3
    if not m then
      local why = other_app and 2 or 1 - call('HEXISTS', hg('deleted'), ARGV[i])
      if (waits or 0) < 1 or why == 1 and waits < 2 then return nil, { NO_LIMIT, index, now_us, why } end
      -- @include missing
      m = missing_meter(id, ARGV[i], other_app)
    end
    m.index, m.cost, m.reserved = index, tonumber(ARGV[i + 2]), 0
    if loaded and m.take and not m.lease_us and not loaded[id] then loaded[id], m.deferred = m, true end
    if m.cost > m.capacity then
      if m.stale then return nil, { STALE, m.name, now_us } end
      return nil, { IMPOSSIBLE, index, now_us, 0, m.left(), m.full_at(), m.capacity }
    end
    if m.stale then stale[#stale + 1] = m.name end
    meters[#meters + 1] = m
  end
  if #stale > 0 then return nil, { STALE, table.concat(stale, ' '), now_us } end
  return meters
end

-- Returns the meter with the longest wait, and the first time at which all meters are ready.
local function find_bottleneck(meters)
  local bottleneck, at, closes = nil, -1, false
  for i = 1, #meters do
    local m = meters[i]
    m.wanted = m.reserved + m.cost
    local ready = m.ready_at(m.wanted)
    if ready > at then bottleneck, at = m, ready end
    closes = closes or m.may_close
  end
  if closes and at > now_us and meters[2] then
    -- @include all_open
    bottleneck, at = all_open(meters, bottleneck, at)
  end
  return bottleneck, at
end

-- Returns the reply for an outcome that meter m decided:
--   {outcome, index of the need, now_us, at, left, full_at_us, capacity, time_us or 0}
-- The capacity is 0 if the limit of m does not exist, and -1 if it is for other apps. at is the time at which to ask again. time_us is described in lanes/acquire.lua.
local function reply(outcome, m, at, time_us)
  local left = m.left() - m.reserved
  return { outcome, m.index, now_us, at, left > 0 and left or 0, m.full_at(), m.shown_capacity or m.capacity, time_us or 0 }
end
