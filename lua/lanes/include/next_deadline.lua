-- @include scope

-- Returns the earliest wait deadline, or nil. No script writes negative or infinite scores. A
-- negative one counts as a deadline that has passed, an infinite one as the latest possible time.
local function next_deadline()
  local ends = call('ZRANGE', hg('deadlines'), 0, 0, 'WITHSCORES')[2]
  if not ends then return nil end
  if string.sub(ends, 1, 1) == '-' then return 1 end
  return math.max(1, math.min(tonumber(ends) or MAX_INT, MAX_INT))
end
