-- Sets the Unique lock of a job to the time that was left when the job began to wait: see
-- keep_unique.
local function let_unique(hash, id, left_ms)
  local lock = redis.call('HGET', hash, 'unique_key')
  if redis.call('GET', lock) == id then redis.call('PEXPIRE', lock, left_ms) end
  redis.call('HDEL', hash, 'lock_ms')
end
