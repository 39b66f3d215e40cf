-- @include scope

-- When a job would run that so many of its lane are before. Lanes take turns, so
-- as many of every other lane go before it, but no more than wait; one that joins
-- comes behind all of a meter that is marked. Returns the meter that decides, its
-- time, and whether that is known.
local function expect(meters, place, joins, marked)
  local last, expected, known
  for i = 1, #meters do
    local m = meters[i]
    local turns = place * m.lanes + (joins and marked == m.id and m.lanes or 0)
    local before = turns * m.cost
    if before > place then
      local all = tonumber(call('HGET', hg('demand'), m.id) or 0) - (joins and 0 or m.cost)
      before = math.max(0, math.min(before, all))
    end
    local at = m.ready_at(m.reserved + before + m.cost)
    if not last or at > expected or (at == expected and m.id == marked) then last, expected, known = m, at, m.known end
  end
  return last, expected, known or expected <= now_us
end
