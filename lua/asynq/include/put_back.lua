-- @include keep_unique

-- Moves an active job into the retry set, as asynq's own Retry does, but that
-- nothing fails in its statistics, and that its Unique lock holds until then. The
-- fields `denied` and `scope` of its hash, which say whose permits it waits for, are
-- ours. Reports whether the job was active, and its lease ends when it should where
-- that is said.
local function put_back(job, msg, at, seconds, scope)
  if job.ends and tonumber(redis.call('ZSCORE', job.lease, job.id) or -1) ~= tonumber(job.ends) then return false end
  if redis.call('LREM', job.active, 0, job.id) == 0 then return false end
  redis.call('ZREM', job.lease, job.id)
  redis.call('ZADD', job.retry, at, job.id)
  redis.call('HSET', job.hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 then keep_unique(job.hash, job.id, seconds) end
  return true
end
