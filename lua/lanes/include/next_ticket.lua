-- @include scope

-- Tickets of consecutive new jobs differ by STEP, so that an earlier job fits between two of them.
local STEP = 65536

-- Takes the next n tickets of a lane (one if n is nil), and returns the last of them. If the stored
-- ticket is no number, the tickets continue after the ticket of the last waiting job.
local function next_ticket(lane, n)
  local ahead = (n or 1) * STEP
  local is, ticket = pcall(call, 'HINCRBY', hg('tickets'), lane, int(ahead))
  if is then return ticket end
  local last = tonumber(call('ZRANGE', hg('lane', lane), -1, -1, 'WITHSCORES')[2] or nil) or 0
  ticket = math.min(math.max(0, floor(last)), MAX_INT / 2) + ahead
  call('HSET', hg('tickets'), lane, int(ticket))
  return ticket
end
