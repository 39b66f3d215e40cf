-- @include scope

-- When the time of the next job is up, or nil where none has to end. What hands have
-- written is up at once, or never.
local function next_deadline()
  local ends = call('ZRANGE', hg('deadlines'), 0, 0, 'WITHSCORES')[2]
  if not ends then return nil end
  if string.sub(ends, 1, 1) == '-' then return 1 end
  return math.max(1, math.min(tonumber(ends) or FAR, FAR))
end
