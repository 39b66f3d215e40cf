-- @include scope

-- Shuts a meter that is paused, or blocked until a moment. While a limit is
-- paused who asks is told to look again in a minute. Nothing is taken early: it would come
-- back from then on, and not from when the meter opens.
local function shut(m, paused, ends)
  m.shut, m.known, m.early = true, not paused and m.known, false
  local ready_at = m.ready_at
  m.open_left = m.left -- what would be, were it not shut
  m.left = function() return 0 end
  m.ready_at = function(k)
    local at = paused and now_us + 60000000 or ready_at(k)
    return ends and ends > at and ends or at
  end
end
