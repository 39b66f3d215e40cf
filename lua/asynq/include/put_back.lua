-- @include extend_unique
-- @include lease

-- Removes a job from the active list if it has the expected lease: see is_lease. The first result
-- is true if the job was in the list, or if the second result of is_lease is true. The second
-- result is the key of the job's Unique lock, false if there is none, or nil if unknown.
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
-- positive, the job's Unique lock then lasts at least `seconds`. `lock` is the second result of
-- remove_active. headgate adds two fields: `scope` is the scope in which the job was denied, and
-- `denied` is the denied job's retry time. Both are '' if the job was not denied.
local function write_retry(hash, id, msg, at, seconds, scope, lock)
  redis.call('HSET', hash, 'msg', msg, 'state', 'retry', 'denied', scope ~= '' and at or '', 'scope', scope)
  if seconds > 0 and lock ~= false then extend_unique(hash, id, seconds) end
end
