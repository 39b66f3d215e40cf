-- Extends the Unique lock of a job, if it has one, so that the lock lasts at least `seconds` from
-- now. headgate adds the field `lock_ms` to the job's hash: the milliseconds that the lock had left
-- before its first extension. See restore_unique.lua.
local function extend_unique(hash, id, seconds)
  local lock, left_ms = unpack(redis.call('HMGET', hash, 'unique_key', 'lock_ms'))
  if not lock or redis.call('GET', lock) ~= id then return end
  local ms = redis.call('PTTL', lock)
  if ms < 0 or ms >= seconds * 1000 then return end
  if not left_ms then redis.call('HSET', hash, 'lock_ms', ms) end
  redis.call('EXPIRE', lock, seconds)
end
