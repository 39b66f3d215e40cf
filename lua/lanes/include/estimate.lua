-- @include count

-- Reads how many permits of each meter all other waiting jobs want.
local function load_before(meters, waits)
  for i = 1, #meters do
    local m = meters[i]
    m.before = math.max(0, parse_counter(call('HGET', hg('demand'), m.id)) - (waits and m.cost or 0))
  end
end

-- Reports whether a lane has a meter to itself. If that has not been counted, all that is wanted
-- there is its own, or goes first.
local function is_alone(m) return (m.lanes or 1) == 1 end

-- When a job would run that so many of its lane are before; m.before is what all others
-- want that wait at a meter. Lanes take turns, so as many of every other lane go before
-- it, but no more than wait; one that joins comes behind all of a meter that is marked.
-- A turn costs what those before it in its lane do on average, if that is known, or
-- what it does. Returns the meter that decides, its time, and whether that is known; neither
-- of the first two where no limit is left.
local function estimate_start(meters, ahead, average, is_new, contended_id)
  local deciding, expected, known, closes
  for i = 1, #meters do
    local m = meters[i]
    local lanes = m.lanes or 1
    local turns = ahead * lanes + (is_new and contended_id == m.id and lanes or 0)
    local cost = average and average[i] or m.cost
    local wanted = m.reserved + math.min(ceil(turns * cost), m.before) + m.cost
    if m.windowed and cost > 1 and cost < m.n then -- what is left of a window when no job fits in any more is lost
      local used = floor(m.n / cost) * cost
      wanted = wanted + ceil(floor((wanted - 1) / used) * (m.n - used))
    end
    m.wanted, closes = wanted, closes or m.closes
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
