-- Gives jobs back to the head of their queue that were taken and not begun.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:headgate, where servers wait for jobs
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] the call that took them, see dequeue
-- ARGV[3…] ID of each job, the first to run in front; and its message, which says where it
--   stood, if it has asked for permits, or empty
-- Returns how many were that call's still; others stay as they are
-- @include lease
local pending, active, lease, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, caller = ARGV[1], ARGV[2]

local given = {}
for i = 3, #ARGV, 2 do
  local id, msg = ARGV[i], ARGV[i + 1]
  local _, is_active = is_lease(prefix .. id, lease, id, caller, '')
  if is_active then
    redis.call('LREM', active, 0, id)
    redis.call('ZREM', lease, id)
    redis.call('HSET', prefix .. id, 'state', 'pending')
    if msg ~= '' then
      redis.call('HSET', prefix .. id, 'msg', msg)
      redis.call('HSETNX', prefix .. id, 'denied', '') -- so it is not new any more
    end
    table.insert(given, 1, id) -- asynq pops from the right
  end
end
if #given > 0 then
  redis.call('RPUSH', pending, unpack(given))
  redis.call('ZADD', marker, 0, '0')
end
return #given
