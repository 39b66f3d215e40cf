-- @include jobs
-- @include next_ticket

-- The key `refused` of a meter tells whether the upstream refuses all calls of the meter, or one job:
--   "<queue>\n<ID>"  only this job was refused since a call was last served
--   ''               several jobs were refused
--   microseconds     time at which a call was served after refusals
local REFUSED_MS = 86400000

-- Tickets in the order of a lane: of the job that tries next after several were refused; of refused
-- jobs, HEAD plus the time at which the job was allowed; of all other jobs; and of the only refused
-- job, TAIL plus that time, so that jobs which come later are tried before it, too.
local NEXT_TRY, HEAD, TAIL = -MAX_INT, -MAX_INT, MAX_INT / 2

-- Gives a waiting job another place in its lane.
local function move_to(lane, queue, id, ticket)
  local name = queue .. '\n' .. id
  local rest = string.match(call('HGET', hg('jobs'), name) or '', '^%-?%d+(\n.*)$')
  if not rest then return end
  call('ZADD', hg('lane', lane), int(ticket), id)
  call('HSET', hg('jobs'), name, int(ticket) .. rest)
end

-- Returns a ticket at the end of a lane: behind jobs of a low priority, too, but not behind a job that
-- alone was refused.
local function last_ticket(lane)
  local waiting = hg('lane', lane)
  local rank = -1 - call('ZCOUNT', waiting, int(TAIL), '+inf')
  local last = tonumber(call('ZRANGE', waiting, rank, rank, 'WITHSCORES')[2] or nil) or 0
  return math.max(next_ticket(lane), last + STEP)
end

-- Returns a job that waits behind all others because it alone was refused: its record, queue and ID.
-- Returns nil if the job with this name does not.
local function refused_alone(name)
  local queue, id = string.match(name, '^([^\n]*)\n(.*)$')
  local r = id and read_job(queue, id)
  if r and r.ticket >= TAIL and call('ZSCORE', hg('lane', r.lane), id) then return r, queue, id end
end
