-- @include scope

-- The soonest that a job can run of whose lane so many are before: each takes a
-- permit at least, and nobody knows what other lanes will take. Where there are none,
-- and it joins as the last, those before cost what it does, or all that is wanted.
-- Returns the meter that decides and its time, or nil where that is known of none.
local function soonest(meters, place, last)
  local decides, at
  for i = 1, #meters do
    local m = meters[i]
    local before = place
    if last and m.lanes == 1 then
      before = math.max(place, math.min(place * m.cost, tonumber(call('HGET', hg('demand'), m.id) or 0)))
    end
    local ready = m.ready_at(m.reserved + before + m.cost)
    if m.known and (not decides or ready > at) then decides, at = m, ready end
  end
  return decides, at
end
