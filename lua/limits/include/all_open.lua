-- @include scope

-- Returns the meter that is ready last, and the first time from `at` on at which all meters are
-- ready. The search takes steps, because a window with a margin can close before another meter is
-- ready. After 100 steps, of which the caller has taken the first, it returns the last time that it
-- tried. Callers ask again at that time.
local function all_open(meters, deciding, at)
  for _ = 2, 100 do
    local before = at
    for i = 1, #meters do
      local m = meters[i]
      local ready = m.may_close and m.ready_at(m.wanted, before) or 0
      if ready > at then deciding, at = m, ready end
    end
    if at == before or at >= MAX_INT then break end
  end
  return deciding, at
end
