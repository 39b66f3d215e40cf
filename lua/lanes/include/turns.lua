-- @include turn_lanes

-- Outcomes of a turn, numbered as in fairqueue.Outcome.
local GRANTED, REFUSED, SKIPPED, EMPTY, FULL, IMPOSSIBLE = 0, 1, 2, 3, 4, 5

-- A job that was denied less than this ago may still be active. It is not promoted before its
-- permits exist, because its promotion could fail and a later job would overtake it.
local PUT_BACK_US = 20000

-- About the time from the promotion of a job until it acquires its permits.
local MIN_ADVANCE_US = 1500

-- Returns the meters of a lane with the costs of its job; nil if a limit does not exist, or has a
-- smaller capacity than the cost.
local function meters_of(lane, r)
  local meters = lane.meters
  for i = 1, #lane.ids do
    local m = meters[i] or cached_meter(lane.ids[i])
    if not m or r.cost[i] > m.capacity then return nil end
    m.cost, meters[i] = r.cost[i], m
  end
  return meters
end

-- Returns the most granted jobs that a lane may have: as many as its meters have permits for when
-- they are full.
local function max_grants(meters)
  local max_granted = math.huge
  for i = 1, #meters do
    max_granted = math.min(max_granted, floor(meters[i].capacity / math.max(meters[i].cost, 1)))
  end
  return max_granted
end

-- Returns the latest time from which the permits of a job may exist if it is granted now. Mostly it
-- is advance_us from now. It is now if
-- - the job has several meters: the permits of one would be reserved while it waits for another;
-- - it is unknown when permits become free; or
-- - the job needs permits of the next window: late jobs of this window will take some of these.
-- If the meter gives few permits at once, a late job would delay the next one, or start too shortly
-- before it. Then the time is shorter.
local function latest_ready_at(meters, ready, advance_us, max_advance_us)
  local m = meters[1]
  local in_next_window = m.windowed and ready <= now_us + advance_us and m.reserved + m.cost > m.n
  if #meters > 1 or not m.known or in_next_window then return now_us end
  local spare_us = (m.capacity - m.cost) * m.period_us / m.n
  if spare_us >= max_advance_us then return now_us + advance_us end
  return now_us + (m.allows_advance and math.min(advance_us, math.max(MIN_ADVANCE_US, floor(spare_us / 2))) or 0)
end

-- Refuses a turn. Later turns that share a meter with its lane are skipped, because they could take
-- permits that are kept for this lane. For the same reason the meters are marked as contended.
local function refuse(meters, held)
  -- @include mark
  for i = 1, #meters do
    local m = meters[i]
    m.refused = true
    if m.ready_at(m.reserved + held[i] + m.cost) > now_us then mark_contended(m.id) end
  end
  return { REFUSED }
end

-- Tries a turn. held_text lists the permits of each meter that are held for other lanes.
local function try_turn(lane, advance_us, held_text, max_advance_us)
  local held = lane.held
  if held_text ~= lane.held_text then
    held = {}
    for permits in string.gmatch(held_text, '%d+') do held[#held + 1] = tonumber(permits) end
  end
  for i = 1, #lane.ids do
    local m = loaded[lane.ids[i]]
    if m and m.refused then
      lane.held = lane.held or held
      return { SKIPPED }
    end
  end
  lane.held, lane.held_text = held, held_text
  local id, r, since_us = first_waiting(lane)
  if not id then return { EMPTY } end
  local meters = meters_of(lane, r)
  if not meters then -- granted without permits, so that its worker archives it
    grant_first(lane, id, r, now_us, 0)
    return { IMPOSSIBLE, id, now_us, 0 }
  end
  local max_granted = max_grants(meters)
  if lane.granted >= max_granted and promoted_count(lane, r.grant_us) >= max_granted then
    call('SADD', hg('full'), lane.name)
    return { FULL }
  end
  local ready = now_us
  for i = 1, #meters do
    local at = meters[i].ready_at(meters[i].reserved + held[i] + meters[i].cost)
    if at > ready then ready = at end
  end
  if ready > latest_ready_at(meters, ready, advance_us, max_advance_us) then return refuse(meters, held) end
  for k = 1, #meters do
    local m = meters[k]
    m.reserved, m.newly_reserved = m.reserved + m.cost, m.newly_reserved + m.cost
  end
  grant_first(lane, id, r, ready, ready + r.grant_us)
  local early = meters[1].allows_advance and not meters[2] and since_us + PUT_BACK_US <= now_us
  return { GRANTED, id, ready, ready + r.grant_us, early and 1 or 0 }
end

-- Returns the needs of a lane's next job, with the same held permits as in its last turn. A funnel
-- gives its permits back one by one, a window all at its end, a concurrency meter when a lease
-- ends.
local function next_needs(lane, max_advance_us)
  local id, r = first_waiting(lane)
  local meters = id and meters_of(lane, r)
  local out = { lane.granted, id and 0 }
  if not meters then return out end -- no job waits, or its limit does not exist
  for i = 1, #meters do
    local m, n = meters[i], #out
    out[n + 1], out[n + 2], out[n + 3] = m.cost, m.ready_at(m.reserved + lane.held[i] + m.cost), m.known and 1 or 0
    local refill_us = m.lease_us or m.period_us
    if m.kind == 'funnel' or m.kind == 'token_bucket' then refill_us = math.min(ceil(m.cost * m.period_us / m.n), MAX_INT) end
    out[n + 4], out[n + 5], out[n + 6] = refill_us, m.closed and 1 or 0, m.windowed and floor(m.n / math.max(m.cost, 1)) or 1
  end
  out[2] = latest_ready_at(meters, out[4], max_advance_us, max_advance_us) - now_us
  return out
end
