-- Keeps a job's lock of asynq's Unique, if it has one, for as many seconds at
-- least.
local function keep_unique(hash, id, seconds)
  local lock = redis.call('HGET', hash, 'unique_key')
  if lock and redis.call('GET', lock) == id and redis.call('TTL', lock) < seconds then
    redis.call('EXPIRE', lock, seconds)
  end
end
