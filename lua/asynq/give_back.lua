-- Returns dequeued jobs that have not started to the head of their queue.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:headgate, the marker for which idle servers wait
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] name of the dequeue that took the jobs
-- ARGV[3…] ID and new message of each job, in the order in which the jobs run. The new message
--   contains the job's place in its lane. It is '' if the job has not asked for permits
-- Returns the number of jobs that went back. Jobs that another dequeue took are not changed
-- @include lease
local pending, active, lease, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, name = ARGV[1], ARGV[2]

local given = {}
for i = 3, #ARGV, 2 do
  local id, msg = ARGV[i], ARGV[i + 1]
  local _, is_active = is_lease(prefix .. id, lease, id, name, '0')
  if is_active then
    redis.call('LREM', active, 0, id)
    redis.call('ZREM', lease, id)
    redis.call('HSET', prefix .. id, 'state', 'pending')
    if msg ~= '' then
      redis.call('HSET', prefix .. id, 'msg', msg)
      redis.call('HSETNX', prefix .. id, 'denied', '') -- marks a job that has asked for permits
    end
    table.insert(given, 1, id) -- asynq pops from the right, so the first job is the rightmost
  end
end
if #given > 0 then
  redis.call('RPUSH', pending, unpack(given))
  redis.call('ZADD', marker, 0, '0')
end
return #given
