-- Keeps a job's lock of asynq's Unique, if it has one, for as many seconds at
-- least. What was left of it, which the field `lock_ms` of the job's hash has, is
-- given back when the job is called.
local function keep_unique(hash, id, seconds)
  local lock, left_ms = unpack(redis.call('HMGET', hash, 'unique_key', 'lock_ms'))
  if not lock or redis.call('GET', lock) ~= id then return end
  local ms = redis.call('PTTL', lock)
  if ms < 0 or ms >= seconds * 1000 then return end
  if not left_ms then redis.call('HSET', hash, 'lock_ms', ms) end
  redis.call('EXPIRE', lock, seconds)
end
