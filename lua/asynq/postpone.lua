-- Changes the time at which asynq itself retries denied jobs.
-- KEYS[1] asynq:{queue}:retry
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] now, Unix second
-- ARGV[3] seconds for which a Unique lock outlasts the new time of its job
-- ARGV[4…] ID, new time of each job, Unix second
-- Returns the number of changed jobs. A job is changed only if it is in the retry set because of a
--   denial
-- @include denied
-- @include extend_unique
local retry = KEYS[1]
local prefix, now, lock_margin = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local postponed = 0
for i = 4, #ARGV, 2 do
  local id, at = ARGV[i], ARGV[i + 1]
  local hash = prefix .. id
  if is_denied(redis.call('ZSCORE', retry, id), redis.call('HGET', hash, 'denied')) then
    redis.call('ZADD', retry, at, id)
    redis.call('HSET', hash, 'denied', at)
    extend_unique(hash, id, tonumber(at) - now + lock_margin)
    postponed = postponed + 1
  end
end
return postponed
