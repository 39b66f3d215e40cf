-- @include extend_unique
-- @include lease

-- Removes a job from the active list. Reports whether it was active under the expected lease.
local function remove_active(active, lease, hash, id, name, ended)
  local matches, is_active = is_lease(hash, lease, id, name, ended)
  return matches and redis.call('LREM', active, 0, id) > 0 or is_active
end

-- Moves jobs from the leases to the retry set. due lists the time and the ID of each job. It runs
-- before the hashes are written, so that no job is lost if a hash cannot be written.
local function move_to_retry(lease, retry, ids, due)
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZADD', retry, unpack(due))
end

-- Writes a job's hash as asynq's script Retry does, without counting a failure, and extends its
-- Unique lock. headgate adds the fields `denied` and `scope`: the scope of the limits at which the
-- job was denied.
local function write_retry(hash, id, msg, at, seconds, scope)
  redis.call('HSET', hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 then extend_unique(hash, id, seconds) end
end
