-- Extends the Unique lock of a job to at least the given seconds, if it has one. headgate adds the
-- field `lock_ms` to the job's hash: the time that was left before. See restore_unique.
local function extend_unique(hash, id, seconds)
  local lock, left_ms = unpack(redis.call('HMGET', hash, 'unique_key', 'lock_ms'))
  if not lock or redis.call('GET', lock) ~= id then return end
  local ms = redis.call('PTTL', lock)
  if ms < 0 or ms >= seconds * 1000 then return end
  if not left_ms then redis.call('HSET', hash, 'lock_ms', ms) end
  redis.call('EXPIRE', lock, seconds)
end
