-- @include keep_unique
-- @include lease

-- Removes a job from the active list. Reports whether it was active under the expected lease.
local function take_back(active, lease, hash, id, name, ended)
  local is, named = is_lease(hash, lease, id, name, ended)
  return is and redis.call('LREM', active, 0, id) > 0 or named
end

-- Moves jobs from the leases to the retry set. due lists the time and the ID of each job. It runs
-- before the hashes are written, so that no job is lost if a hash cannot be written.
local function into_retry(lease, retry, ids, due)
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZADD', retry, unpack(due))
end

-- Writes a job's hash as asynq's script Retry does, without counting a failure, and extends its
-- Unique lock. The fields `denied` and `scope` are ours: the scope names the limiter whose permits
-- the job waits for.
local function put_back(hash, id, msg, at, seconds, scope)
  redis.call('HSET', hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 then keep_unique(hash, id, seconds) end
end
