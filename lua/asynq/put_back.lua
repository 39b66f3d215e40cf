-- Puts active jobs of a queue back into asynq's retry set, even if they have no retries left.
-- Safe to repeat.
-- KEYS[1] asynq:{queue}:active
-- KEYS[2] asynq:{queue}:lease
-- KEYS[3] asynq:{queue}:retry
-- KEYS[4…] asynq:{queue}:t:{id}, each job's hash
-- ARGV[1…] for each job:
--   id            ID of the job
--   message       new message of the job, with the reason of the put-back
--   retry_at      time at which asynq itself retries the job, Unix second
--   lock_seconds  seconds that its Unique lock, if it has one, must last
--   scope         scope in which the job was denied; only such a job can be promoted or postponed.
--                 '' if the job was not denied
--   name, ended   the expected lease: see lease.lua
-- Returns for each job 1 if it was put back, or 0 if it is not active or has another lease
-- @include put_back
local active, lease, retry = KEYS[1], KEYS[2], KEYS[3]

-- Reports whether an earlier attempt of this call put back a job that the dequeue `name` took.
local function is_back(hash, name)
  local taken_by, state = unpack(redis.call('HMGET', hash, 'pending_since', 'state'))
  return taken_by and taken_by == name and state == 'retry'
end

local results, moved_now, locks, ids, due = {}, {}, {}, {}, {}
for i = 1, #ARGV, 7 do
  local id, name, hash = ARGV[i], ARGV[i + 5], KEYS[3 + (i + 6) / 7]
  local moved, lock = remove_active(active, lease, hash, id, name, ARGV[i + 6])
  if moved then ids[#ids + 1], due[#due + 1], due[#due + 2] = id, ARGV[i + 2], id end
  moved_now[#moved_now + 1], results[#results + 1] = moved, (moved or is_back(hash, name)) and 1 or 0
  locks[#results] = lock
end
if ids[1] then move_to_retry(lease, retry, ids, due) end
for n = 1, #results do
  local i = 7 * n - 6
  if moved_now[n] then write_retry(KEYS[3 + n], ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4], locks[n]) end
end
return results
