-- @include scope

-- Adds to a counter in a hash, which at zero leaves nothing behind. Nor does one that
-- is no number: nothing that a script has written. Returns what it says then.
local reserved_version = 0 -- how often what is reserved
local function count(counters, id, change)
  if counters == hg('meters') then reserved_version = reserved_version + 1 end
  local is, n = pcall(call, 'HINCRBY', counters, id, int(change))
  if is and n > 0 then return n end
  call('HDEL', counters, id)
  return 0
end

-- What a counter says: 0 where there is none, or nothing that a script has written.
local function parse_counter(text) return math.min(math.max(0, floor(tonumber(text) or 0)), MAX_INT) end
