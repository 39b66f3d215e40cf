-- Restores the remaining time of a job's Unique lock from before its wait: see extend_unique.
local function restore_unique(hash, id, left_ms)
  local lock = redis.call('HGET', hash, 'unique_key')
  if redis.call('GET', lock) == id then redis.call('PEXPIRE', lock, left_ms) end
  redis.call('HDEL', hash, 'lock_ms')
end
