-- @include scope

-- Consecutive tickets differ by STEP, so that a job with a changed rule fits between two others.
local STEP = 65536

-- Returns the next ticket of a lane, or the last of the next n tickets. If the stored ticket is no
-- number, the tickets continue after that of the last waiting job.
local function next_ticket(lane, n)
  local ahead = (n or 1) * STEP
  local is, ticket = pcall(call, 'HINCRBY', hg('tickets'), lane, int(ahead))
  if is then return ticket end
  local last = tonumber(call('ZRANGE', hg('lane', lane), -1, -1, 'WITHSCORES')[2] or nil) or 0
  ticket = math.min(math.max(0, floor(last)), MAX_INT / 2) + ahead
  call('HSET', hg('tickets'), lane, int(ticket))
  return ticket
end
