-- Puts a job back whose worker died, unless that has happened too often. The
-- field `crashes` of the job's hash, which counts them, is ours.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:retry
-- ARGV[1] id
-- ARGV[2] its message, which says why
-- ARGV[3] unix second at which it comes back: now
-- ARGV[4] seconds that its Unique lock must hold for
-- ARGV[5] how many crashes are forgiven
-- Returns 1, 0 if no more are forgiven and nothing was done, or asynq's error
--   NOT FOUND if the job is not active
-- Keeps a job's lock of asynq's Unique, if it has one, for as many seconds at
-- least.
local function keep_unique(hash, id, seconds)
  local lock = redis.call('HGET', hash, 'unique_key')
  if lock and redis.call('GET', lock) == id and redis.call('TTL', lock) < seconds then
    redis.call('EXPIRE', lock, seconds)
  end
end

-- Moves an active job into the retry set, as asynq's own Retry does, but that
-- nothing fails in its statistics, and that its Unique lock holds until then.
-- Reports whether the job was active.
local function put_back(job, msg, at, seconds)
  if redis.call('LREM', job.active, 0, job.id) == 0 then return false end
  redis.call('ZREM', job.lease, job.id)
  redis.call('ZADD', job.retry, at, job.id)
  redis.call('HSET', job.hash, 'msg', msg, 'state', 'retry')
  redis.call('HDEL', job.hash, 'called', 'denied')
  keep_unique(job.hash, job.id, seconds)
  return true
end
local job = { hash = KEYS[1], active = KEYS[2], lease = KEYS[3], retry = KEYS[4], id = ARGV[1] }
local msg, at, seconds, forgiven = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

if tonumber(redis.call('HGET', job.hash, 'crashes') or 0) >= forgiven then return 0 end
if not put_back(job, msg, at, seconds) then return redis.error_reply('NOT FOUND') end
redis.call('HINCRBY', job.hash, 'crashes', 1)
return 1
