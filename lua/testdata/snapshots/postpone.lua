-- Sets anew when asynq itself would bring denied jobs back.
-- KEYS[1] asynq:{queue}:retry
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] the time as unix second
-- ARGV[3] seconds by which a Unique lock outlasts the wait
-- ARGV[4…] id and unix second for each job
-- Returns how many of them waited denied in the retry set; others stay as they
--   are
-- Reports whether a job waits in asynq's retry set because it was denied. The
-- field `denied` of its hash is ours and says until when it was put back; one
-- that failed since has another score.
local function denied(retry, hash, id)
  local at = redis.call('HGET', hash, 'denied')
  return at and tonumber(redis.call('ZSCORE', retry, id) or -1) == tonumber(at)
end
-- Keeps a job's lock of asynq's Unique, if it has one, for as many seconds at
-- least.
local function keep_unique(hash, id, seconds)
  local lock = redis.call('HGET', hash, 'unique_key')
  if lock and redis.call('GET', lock) == id and redis.call('TTL', lock) < seconds then
    redis.call('EXPIRE', lock, seconds)
  end
end
local retry = KEYS[1]
local prefix, now, longer = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local postponed = 0
for i = 4, #ARGV, 2 do
  local id, at = ARGV[i], ARGV[i + 1]
  local hash = prefix .. id
  if denied(retry, hash, id) then
    redis.call('ZADD', retry, at, id)
    redis.call('HSET', hash, 'denied', at)
    keep_unique(hash, id, tonumber(at) - now + longer)
    postponed = postponed + 1
  end
end
return postponed
