-- Removes jobs whose wait deadline has passed from their lanes, and returns these jobs. The caller
-- promotes each job, so that a worker takes it and its acquire call fails. Until acquire is called
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

-- The expiry field of a record counts how often the job was returned: see expiry.lua.
local out = { -1 }
local expired = call('ZRANGEBYSCORE', hg('deadlines'), '-inf', int(now_us), 'LIMIT', 0, max_jobs)
for i = 1, #expired do
  local record = call('HGET', hg('jobs'), expired[i])
  local before, times, after = string.match(record or '', '^(%-?%d+\n%d+\n%d+\n)([1-6])( *%d*\n[%d,]+\n.*)$')
  local id, r = string.match(expired[i], '\n(.*)$'), times and parse_job(record)
  if id and r then
    remove(id, r)
    call('HSET', hg('jobs'), expired[i], before .. int(math.min(times + 1, 6)) .. after)
    call('ZADD', hg('deadlines'), int(now_us + 500000 * 2 ^ times), expired[i])
    out[#out + 1] = expired[i]
  else -- the record is missing or malformed
    call('ZREM', hg('deadlines'), expired[i])
  end
end
for i = 1, #headless do notify_freed(headless[i]) end
local next_us = next_deadline()
if next_us then out[1] = math.max(0, next_us - now_us) end
return out
