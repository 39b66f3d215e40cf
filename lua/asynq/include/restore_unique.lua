-- Gives a job's Unique lock the remaining milliseconds that it had before it was extended for the
-- job's wait: see extend_unique.lua.
local function restore_unique(hash, id, left_ms)
  local lock = redis.call('HGET', hash, 'unique_key')
  if redis.call('GET', lock) == id then redis.call('PEXPIRE', lock, left_ms) end
  redis.call('HDEL', hash, 'lock_ms')
end
