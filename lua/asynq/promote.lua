-- Moves denied jobs from asynq's retry set to the head of the pending list, behind the jobs that
-- were promoted before. A job's Unique lock gets back the time that it had left at the denial.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:retry
-- KEYS[3] asynq:{queue}:headgate, the marker for which idle servers wait
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] now, Unix nanoseconds of the caller's clock, as in asynq
-- ARGV[3…] IDs of the jobs, in the order in which they run
-- Returns for each job one of
--   moved    this call has made the job pending
--   active   a worker has the job
--   pending  the job was pending before, or asynq's next poll makes it pending
--   done     the job waits for no permit: it is archived, completed, scheduled, or retried later
--   gone     the job does not exist
-- @include denied
-- @include restore_unique
local pending, retry, marker = KEYS[1], KEYS[2], KEYS[3]
local prefix, now_ns = ARGV[1], ARGV[2]

local moved = {}

local function move(id, score)
  local hash = prefix .. id
  local state, denied, lock_ms = unpack(redis.call('HMGET', hash, 'state', 'denied', 'lock_ms'))
  if not state then return 'gone' end
  if state == 'active' or state == 'pending' then return state end
  if state ~= 'retry' then return 'done' end
  if not is_denied(score, denied) then -- the job failed or crashed; it is pending soon if its retry is due
    return tonumber(score or math.huge) * 1e9 <= tonumber(now_ns) and 'pending' or 'done'
  end
  redis.call('HSET', hash, 'state', 'pending', 'pending_since', now_ns, 'denied', PROMOTED)
  if lock_ms then restore_unique(hash, id, lock_ms) end
  moved[#moved + 1] = id
  return 'moved'
end

-- Removes the jobs of earlier promotions from the head of the pending list, and returns them. At
-- most 64 are removed, because more would take too long.
local function pop_promoted()
  local promoted = {}
  while #promoted < 64 do
    local id = redis.call('LINDEX', pending, -1 - #promoted)
    if not id or redis.call('HGET', prefix .. id, 'denied') ~= PROMOTED then break end
    promoted[#promoted + 1] = id
  end
  if #promoted > 0 then redis.call('LTRIM', pending, 0, -1 - #promoted) end
  return promoted
end

local results, scores = {}, redis.call('ZMSCORE', retry, unpack(ARGV, 3))
for i = 3, #ARGV do results[i - 2] = move(ARGV[i], scores[i - 2]) end
if moved[1] then -- asynq pops from the right, so the first job to run is pushed last
  redis.call('ZREM', retry, unpack(moved))
  local promoted, back = pop_promoted(), {}
  for i = #moved, 1, -1 do back[#back + 1] = moved[i] end
  for i = #promoted, 1, -1 do back[#back + 1] = promoted[i] end
  redis.call('RPUSH', pending, unpack(back))
  redis.call('ZADD', marker, 0, '0')
end
return results
