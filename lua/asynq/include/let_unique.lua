-- Has a job's lock of asynq's Unique end when it would have ended, had the job not
-- waited: see keep_unique.
local function let_unique(hash, id, left_ms)
  local lock = redis.call('HGET', hash, 'unique_key')
  if redis.call('GET', lock) == id then redis.call('PEXPIRE', lock, left_ms) end
  redis.call('HDEL', hash, 'lock_ms')
end
