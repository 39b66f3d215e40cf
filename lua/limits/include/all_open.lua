-- @include scope

-- A window with a margin may close before other meters are ready. Returns the meter that is ready
-- last, and the first time from `at` on at which all meters are ready. If it finds no such time in
-- 100 steps, it returns a time at which to try again.
local function all_open(meters, deciding, at)
  for _ = 1, 100 do
    local before = at
    for i = 1, #meters do
      local m = meters[i]
      local ready = m.may_close and m.ready_at(m.wanted, at) or 0
      if ready > at then deciding, at = m, ready end
    end
    if at == before or at >= MAX_INT then break end
  end
  return deciding, at
end
