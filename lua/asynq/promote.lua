-- Moves denied jobs from asynq's retry set to the head of their queue's pending
-- list, behind those moved before. Their Unique locks go on from where they were
-- when the jobs were denied.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:retry
-- KEYS[3] asynq:{queue}:headgate, where servers wait for jobs
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] the time in nanoseconds, by the caller's clock as everywhere in asynq
-- ARGV[3…] jobs, the one to run first in front
-- Returns for each job: moved, active (its handler has not returned), pending
--   already or with asynq's next poll, done (it waits for no permit: archived,
--   completed, scheduled …), or gone
-- @include denied
-- @include let_unique
local pending, retry, marker = KEYS[1], KEYS[2], KEYS[3]
local prefix, now_ns = ARGV[1], ARGV[2]

local moved = {}

local function move(id, score)
  local hash = prefix .. id
  local state, at, lock_ms = unpack(redis.call('HMGET', hash, 'state', 'denied', 'lock_ms'))
  if not state then return 'gone' end
  if state == 'active' or state == 'pending' then return state end
  if state ~= 'retry' then return 'done' end
  if not is_denied(score, at) then -- it failed, or its worker died: then it is due
    return tonumber(score or math.huge) * 1e9 <= tonumber(now_ns) and 'pending' or 'done'
  end
  redis.call('HSET', hash, 'state', 'pending', 'pending_since', now_ns, 'denied', CALLED)
  if lock_ms then let_unique(hash, id, lock_ms) end
  moved[#moved + 1] = id
  return 'moved'
end

-- Takes the jobs moved before off the head of the list, where they stand in
-- order. Beyond 64 the workers cannot keep up, and order matters less than the
-- cost of keeping it.
local function take_line()
  local line = {}
  while #line < 64 do
    local id = redis.call('LINDEX', pending, -1 - #line)
    if not id or redis.call('HGET', prefix .. id, 'denied') ~= CALLED then break end
    line[#line + 1] = id
  end
  if #line > 0 then redis.call('LTRIM', pending, 0, -1 - #line) end
  return line
end

local fates, scores = {}, redis.call('ZMSCORE', retry, unpack(ARGV, 3))
for i = 3, #ARGV do fates[i - 2] = move(ARGV[i], scores[i - 2]) end
if moved[1] then -- asynq pops from the right
  redis.call('ZREM', retry, unpack(moved))
  local line, back = take_line(), {}
  for i = #moved, 1, -1 do back[#back + 1] = moved[i] end
  for i = #line, 1, -1 do back[#back + 1] = line[i] end
  redis.call('RPUSH', pending, unpack(back))
  redis.call('ZADD', marker, 0, '0')
end
return fates
