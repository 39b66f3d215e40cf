-- @include scope

-- Some meters close again: a window with a margin, and one whose override ends. So one may be
-- closed when the last of the others opens. Returns the meter that opens last, and the first time
-- from `at` on at which all are open for what is wanted of them. If windows hardly ever meet, it is
-- a time at which to ask again.
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
