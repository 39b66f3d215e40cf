-- @include extend_unique
-- @include lease

-- Removes a job from the active list if it has the expected lease: see lease.lua. The first result is
-- true if the job was removed, or if is_lease's second result is true. The second result is is_lease's
-- third: the key of the Unique lock.
local function remove_active(active, lease, hash, id, name, ended)
  local matches, is_active, lock = is_lease(hash, lease, id, name, ended)
  return matches and redis.call('LREM', active, 0, id) > 0 or is_active, lock
end

-- Moves jobs from the leases to the retry set. `due` lists the retry time, a Unix second, and the
-- ID of each job. The caller writes the hashes afterwards, so a failed write loses no job.
local function move_to_retry(lease, retry, ids, due)
  redis.call('ZREM', lease, unpack(ids))
  redis.call('ZADD', retry, unpack(due))
end

-- Writes a job's hash as asynq's script Retry does, but counts no failure. If `seconds` is
-- positive, extends the job's Unique lock to as many seconds, unless `lock` is false. headgate adds
-- two fields: `scope` is the scope in which the job was denied, and `denied` is the retry time of the
-- denied job. Both are '' if the job was not denied.
local function write_retry(hash, id, msg, at, seconds, scope, lock)
  redis.call('HSET', hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 and lock ~= false then extend_unique(hash, id, seconds) end
end
