-- @include scope

-- From one ticket to the next there is room for those who come with a changed rule.
local STEP = 65536

-- The next ticket of a lane, or the last of the next n. Where its last is no number, that
-- is behind all who wait.
local function next_ticket(lane, n)
  local ahead = (n or 1) * STEP
  local is, ticket = pcall(call, 'HINCRBY', hg('tickets'), lane, int(ahead))
  if is then return ticket end
  local last = tonumber(call('ZRANGE', hg('lane', lane), -1, -1, 'WITHSCORES')[2] or nil) or 0
  ticket = math.min(math.max(0, floor(last)), MAX_INT / 2) + ahead
  call('HSET', hg('tickets'), lane, int(ticket))
  return ticket
end
