-- @include scope

-- Returns the earliest wait deadline, Unix microseconds, or nil if there is none. A corrupt score,
-- negative or infinite, is brought into the range from 1 to MAX_INT.
local function next_deadline()
  local ends = call('ZRANGE', hg('deadlines'), 0, 0, 'WITHSCORES')[2]
  if not ends then return nil end
  if string.sub(ends, 1, 1) == '-' then return 1 end
  return math.max(1, math.min(tonumber(ends) or MAX_INT, MAX_INT))
end
