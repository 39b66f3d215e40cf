-- @include scope

-- The soonest that a job can run of whose lane so many are before: each takes a
-- permit at least, and nobody knows what other lanes will take. Returns the meter
-- that decides and its time, or nil where that is known of none.
local function soonest(meters, place)
  local last, at
  for i = 1, #meters do
    local m = meters[i]
    local ready = m.ready_at(m.reserved + place + m.cost)
    if m.known and (not last or ready > at) then last, at = m, ready end
  end
  return last, at
end
