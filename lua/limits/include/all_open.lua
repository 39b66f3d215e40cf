-- @include scope

-- Returns the meter that is ready last, and the first time, not before `at`, at which all meters are
-- ready. A window with a margin can close before another meter is ready, so the function tries later
-- and later times. The caller has tried one time. If 99 more do not suffice, the function returns the
-- last one, and callers request again at that time.
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
