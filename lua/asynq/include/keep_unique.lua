-- Makes the Unique lock of a job, if it has one, last at least that many seconds. The field
-- `lock_ms` of the job's hash stores the time that was left before. let_unique restores it when
-- the job is granted its permits.
local function keep_unique(hash, id, seconds)
  local lock, left_ms = unpack(redis.call('HMGET', hash, 'unique_key', 'lock_ms'))
  if not lock or redis.call('GET', lock) ~= id then return end
  local ms = redis.call('PTTL', lock)
  if ms < 0 or ms >= seconds * 1000 then return end
  if not left_ms then redis.call('HSET', hash, 'lock_ms', ms) end
  redis.call('EXPIRE', lock, seconds)
end
