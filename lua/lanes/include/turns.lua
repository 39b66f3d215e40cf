-- @include turn_lanes

-- Outcomes of a turn, numbered as in fairqueue.Outcome.
local GRANTED, REFUSED, SKIPPED, EMPTY, FULL, IMPOSSIBLE = 0, 1, 2, 3, 4, 5

-- A job whose wait began less than this ago may still be active in asynq. Such a job is not
-- promoted before its permits exist: the promotion could fail, and a later job would overtake it.
local PUT_BACK_US = 20000

-- Time from the promotion of a job within which it nearly always acquires its permits, on a busy
-- machine, too: travelTime of fairqueue. If it comes later, a meter of capacity 1 loses permits.
local MIN_ADVANCE_US = 10000

-- Jobs of a lane that are granted at once to ask for a limit that does not exist: their workers
-- know whether the jobs wait for it.
local MAX_ASKING = 64

-- A lane that waits for a limit of other apps asks again after this time, because its later jobs
-- may be of workers that may use the limit.
local RETRY_APP_US = 60000000

-- Returns a closed meter if the lane waits until its limit is defined: see note_missing. Returns m
-- in all other cases. m is false if the limit does not exist.
local function unless_missing(lane, id, m)
  local name = string.match(id, '^([^|]*)')
  local noted_us = tonumber(call('HGET', hg('missing', name), lane.name) or nil)
  if not noted_us or m and noted_us + RETRY_APP_US <= now_us then return m end
  -- @include missing
  return missing_meter(id, name, m)
end

-- Returns the meters of a lane, with the costs of the job whose record is `r`. Returns nil if a
-- limit does not exist and the lane does not wait for it, or if the job costs more permits than a
-- meter's capacity.
local function meters_of(lane, r)
  local meters = lane.meters
  for i = 1, #lane.ids do
    local m = meters[i] or cached_meter(lane.ids[i])
    if not meters[i] and (not m or m.apps) then m = unless_missing(lane, lane.ids[i], m) end
    if not m or r.cost[i] > m.capacity then return nil end
    m.cost, meters[i] = r.cost[i], m
  end
  return meters
end

-- Returns how many granted jobs a lane may have at most. It is the number of jobs of the current
-- costs for which every meter has enough permits when it is full.
local function max_grants(meters)
  local max_granted = math.huge
  for i = 1, #meters do
    max_granted = math.min(max_granted, floor(meters[i].capacity / math.max(meters[i].cost, 1)))
  end
  return max_granted
end

-- Returns a time: the job is granted now only if its permits exist from this time on or earlier.
-- Usually this is advance_us from now. It is now_us if
-- - the job has several meters, because one meter's permits would be reserved while others refill;
-- - it is unknown when the meter's permits become free; or
-- - the job needs permits of the next window, because late jobs of this window take some of them.
-- If the meter gives only few permits at once, the time is nearer to now: a late job would delay
-- the job after it, or start too shortly before that job.
local function latest_ready_at(meters, ready, advance_us, max_advance_us)
  local m = meters[1]
  local in_next_window = m.windowed and ready <= now_us + advance_us and m.reserved + m.cost > m.n
  if #meters > 1 or not m.known or in_next_window then return now_us end
  local spare_us = (m.capacity - m.cost) * m.period_us / m.n
  if spare_us >= max_advance_us then return now_us + advance_us end
  return now_us + (m.allows_advance and math.min(advance_us, math.max(MIN_ADVANCE_US, floor(spare_us / 2))) or 0)
end

-- Refuses a lane's turn. Later turns of this call that need one of the lane's meters are skipped,
-- because they could take permits for which this lane waits. For the same reason, the meters whose
-- permits do not exist yet are marked as contended. If one of the meters is closed, the lane waits
-- there, perhaps for ever, and leaves the permits of its open meters to others.
local function refuse(meters, held)
  -- @include mark
  local is_closed = false
  for i = 1, #meters do is_closed = is_closed or meters[i].closed end
  for i = 1, #meters do
    local m = meters[i]
    m.refused = true
    if (m.closed or not is_closed) and m.ready_at(m.reserved + held[i] + m.cost) > now_us then mark_contended(m.id) end
  end
  return { REFUSED }
end

-- Tries a turn, and returns its row: see grant.lua. held_text lists, for each of the lane's meters,
-- the number of permits that are held for other lanes.
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
  if not meters then -- granted without permits, so that its worker asks, and archives it or lets it wait
    if lane.granted >= MAX_ASKING then
      call('SADD', hg('full'), lane.name)
      return { FULL }
    end
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

-- Returns the row of a lane, with the needs of its next job: see grant.lua. The held permits are
-- those of the lane's last turn. The permits of a funnel or token bucket become free one by one,
-- those of a window at its end, and those of a concurrency meter when a lease ends.
local function next_needs(lane, max_advance_us)
  local id, r = first_waiting(lane)
  local meters = id and meters_of(lane, r)
  local out = { lane.granted, id and 0 }
  if not meters then return out end -- no job waits, or the first job cannot be allowed
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
