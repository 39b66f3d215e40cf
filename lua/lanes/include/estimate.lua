-- @include count

-- Sets m.before of each meter to the number of permits that other waiting jobs need. is_waiting
-- says whether the job itself waits: its costs are then in the demand, and are subtracted.
local function load_before(meters, is_waiting)
  for i = 1, #meters do
    local m = meters[i]
    m.before = math.max(0, parse_counter(call('HGET', hg('demand'), m.id)) - (is_waiting and m.cost or 0))
  end
end

-- Reports whether exactly one lane needs a meter. An unknown number of lanes counts as one lane.
local function is_alone(m) return (m.lanes or 1) == 1 end

-- Estimates the start of a job that has `ahead` jobs of its lane ahead of it. Lanes take turns, so
-- as many jobs of each other lane go first. Their permits are at most m.before: see load_before. If
-- the job joins a lane now (is_new), each lane at the meter contended_id has one more turn before
-- it. `average` lists for each meter the average cost of the jobs ahead. If `average` is false,
-- each of these jobs costs as much as the given job. Returns the deciding meter, the time in Unix
-- microseconds, and whether the time is known. Meter and time are nil if there are no meters.
local function estimate_start(meters, ahead, average, is_new, contended_id)
  local deciding, expected, known, closes
  for i = 1, #meters do
    local m = meters[i]
    local lanes = m.lanes or 1
    local turns = ahead * lanes + (is_new and contended_id == m.id and lanes or 0)
    local cost = average and average[i] or m.cost
    local wanted = m.reserved + math.min(ceil(turns * cost), m.before) + m.cost
    if m.windowed and cost > 1 and cost < m.n then -- the rest of a window is wasted if no job fits in
      local used = floor(m.n / cost) * cost
      wanted = wanted + ceil(floor((wanted - 1) / used) * (m.n - used))
    end
    m.wanted, closes = wanted, closes or m.may_close
    local at = m.ready_at(wanted)
    if not deciding or at > expected or (at == expected and m.id == contended_id) then deciding, expected, known = m, at, m.known end
  end
  if closes and expected > now_us and meters[2] then
    -- @include all_open
    deciding, expected = all_open(meters, deciding, expected)
    known = deciding.known
  end
  return deciding, expected, known or not deciding or expected <= now_us
end
