-- @include keep_unique
-- @include lease

-- Takes a job from the active list. Reports whether it was active under the lease that is meant.
local function take_back(active, lease, hash, id, name, ended)
  local is, named = is_lease(hash, lease, id, name, ended)
  return is and redis.call('LREM', active, 0, id) > 0 or named
end

-- Moves jobs that were taken back into the retry set: due has when each is due, and its ID.
-- From then on none can be lost, whatever its hash is.
local function into_retry(lease, retry, ids, due)
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZADD', retry, unpack(due))
end

-- Has a job's hash be as asynq's own Retry has it; but nothing fails in its statistics, and
-- its Unique lock holds until then. The fields `denied` and `scope`, which say whose permits
-- it waits for, are ours.
local function put_back(hash, id, msg, at, seconds, scope)
  redis.call('HSET', hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 then keep_unique(hash, id, seconds) end
end
