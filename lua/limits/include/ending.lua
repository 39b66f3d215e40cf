-- @include scope

-- A meter whose key counts otherwise until a moment. What would be ready later is
-- ready as the limit itself says from then on.
local function ending(m, paused, after)
  local ready_at, full_at = m.ready_at, m.full_at
  m.ready_at = function(k)
    local at = ready_at(k)
    return (paused or at < m.ends_us) and at or after().ready_at(k)
  end
  m.full_at = function()
    local at = full_at()
    return at < m.ends_us and at or after().full_at()
  end
end
