-- @include needs

-- Takes the permits of all meters. If already_taken is true, an earlier attempt took the permits,
-- and take_all only builds the reply, with what is left of the leases. The call begins at the time `at`, or now if `at` is nil. The
-- reply's index, left, full_at_us and capacity are about the meter with the fewest free permits:
--   {ALLOWED, index of the need, now_us, now_us, left, full_at_us, capacity, shortest lease in
--    microseconds or 0, flags, then mark and given (see charge.lua) of each need}
-- The flags are the sum of 1 if the limiter must get feedback, and 2 if permits of a window are taken.
local function take_all(meters, already_taken, at)
  local tightest, fewest, lease_us
  local wants_feedback, windowed = false, false
  local result = { ALLOWED, 0, now_us, now_us, 0, 0, 0, 0, 0 }
  for i = 1, #meters do
    local m = meters[i]
    local mark, given
    if m.cost > 0 and not already_taken then mark, given = m.take(m.cost, at) end
    result[8 + 2 * i], result[9 + 2 * i] = mark or 0, given or 0
    wants_feedback = wants_feedback or m.wants_feedback
    windowed = windowed or m.windowed and m.cost > 0
    local left = m.left() - m.reserved
    if not fewest or left < fewest then tightest, fewest = m, left end
    local lasts_us = m.lease_us and m.cost > 0 and (already_taken and m.held_us or m.lease_us)
    if lasts_us and (not lease_us or lasts_us < lease_us) then lease_us = lasts_us end
  end
  result[2], result[5], result[6] = tightest.index, fewest > 0 and fewest or 0, tightest.full_at()
  result[7], result[8] = tightest.capacity, lease_us or 0
  result[9] = (wants_feedback and 1 or 0) + (windowed and 2 or 0)
  return result
end

-- Stores the states of the shared funnels and token buckets from which calls took permits: see
-- load_needs.
local function store_taken(loaded)
  for _, m in pairs(loaded) do
    if m.deferred == 'taken' then
      m.deferred = false
      m.take()
    end
  end
end
