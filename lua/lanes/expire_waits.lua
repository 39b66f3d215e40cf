-- Removes jobs whose wait deadline has passed from their lanes, and returns these jobs. The caller
-- promotes each job, so that a worker takes it and its acquire call fails. If the deadline is 0,
-- Redis lost it, and the acquire call begins another wait at the same place. Until acquire is called
-- for a job, this script returns the job again: first after a second, then after pauses that
-- double up to 32 s.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] most jobs to return
-- Returns {microseconds until the next wait deadline, -1 if there is none; then the name of each
--   returned job: "<queue>\n<ID>"}
-- @include lanes
-- @include next_deadline
local max_jobs = ARGV[1]

local headless = {} -- lanes whose first job this call has removed
local function remove(id, r)
  if leave_lane(id, r) == 0 and not headless[r.lane] then
    headless[r.lane], headless[#headless + 1] = true, r.lane
  end
  remove_if_empty(r.lane)
end

-- Returns the next value of a record's expiry field, and how often the job has been returned.
local function next_expiry(expiry, deadline)
  if expiry == HAS_DEADLINE and deadline == '0' then return LOST_DEADLINE, 1 end
  if expiry < LOST_DEADLINE then return int(math.min(expiry + 1, 6)), tonumber(expiry) end
  return int(math.min(expiry + 1, 9)), 2 * (expiry - LOST_DEADLINE) + 2 -- the last is 6, too
end

local out = { -1 }
local expired = call('ZRANGEBYSCORE', hg('deadlines'), '-inf', int(now_us), 'WITHSCORES', 'LIMIT', 0, max_jobs)
for i = 1, #expired, 2 do
  local name = expired[i]
  local record = call('HGET', hg('jobs'), name)
  local before, expiry, after = string.match(record or '', '^(%-?%d+\n%d+\n%d+\n)([1-9])( *%d*\n[%d,]+\n.*)$')
  local id, r = string.match(name, '\n(.*)$'), expiry and parse_job(record)
  if id and r then
    local raised, times = next_expiry(expiry, expired[i + 1])
    remove(id, r)
    call('HSET', hg('jobs'), name, before .. raised .. after)
    call('ZADD', hg('deadlines'), int(now_us + 500000 * 2 ^ times), name)
    out[#out + 1] = name
  else -- the record is missing or malformed
    call('ZREM', hg('deadlines'), name)
  end
end
for i = 1, #headless do notify_freed(headless[i]) end
local next_us = next_deadline()
if next_us then out[1] = math.max(0, next_us - now_us) end
return out
