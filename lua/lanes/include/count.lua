-- @include scope

-- Number of changes that this call has made to reserved permits: see reserved.lua.
local reserved_version = 0

-- Adds a change to a counter in a hash, and returns the new value. A counter is deleted if its new
-- value is not positive or its old value is no number. The function then returns 0.
local function count(counters, id, change)
  if counters == hg('meters') then reserved_version = reserved_version + 1 end
  local is, n = pcall(call, 'HINCRBY', counters, id, int(change))
  if is and n > 0 then return n end
  call('HDEL', counters, id)
  return 0
end

-- Parses a counter. Returns 0 if the counter is missing, malformed or negative.
local function parse_counter(text) return math.min(math.max(0, floor(tonumber(text) or 0)), MAX_INT) end
