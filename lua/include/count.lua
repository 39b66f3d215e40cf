-- @include scope

-- Adds to a counter in a hash, which at zero leaves nothing behind.
local function count(counters, id, change)
  local n = call('HINCRBY', counters, id, int(change))
  if n <= 0 then call('HDEL', counters, id) end
end
