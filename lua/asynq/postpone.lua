-- Sets anew when asynq itself would bring denied jobs back.
-- KEYS[1] asynq:{queue}:retry
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] the time as unix second
-- ARGV[3] seconds by which a Unique lock outlasts the wait
-- ARGV[4…] id and unix second for each job
-- Returns how many of them waited denied in the retry set; others stay as they
--   are
-- @include denied
-- @include keep_unique
local retry = KEYS[1]
local prefix, now, longer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local postponed = 0
for i = 4, #ARGV, 2 do
  local id, at = ARGV[i], ARGV[i + 1]
  local hash = prefix .. id
  if is_denied(redis.call('ZSCORE', retry, id), redis.call('HGET', hash, 'denied')) then
    redis.call('ZADD', retry, at, id)
    redis.call('HSET', hash, 'denied', at)
    keep_unique(hash, id, tonumber(at) - now + longer)
    postponed = postponed + 1
  end
end
return postponed
