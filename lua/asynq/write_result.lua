-- Stores the result of an existing job that still has the lease of the given dequeue.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:lease
-- ARGV[1] ID of the job
-- ARGV[2] name of the dequeue that took the job
-- ARGV[3] the result
-- Returns 1 if the result is stored, or 0 if the job does not exist or has another lease
-- @include lease
local hash, lease = KEYS[1], KEYS[2]
local id, name, result = ARGV[1], ARGV[2], ARGV[3]

if redis.call('EXISTS', hash) == 0 or not is_lease(hash, lease, id, name, '0') then return 0 end
redis.call('HSET', hash, 'result', result)
return 1
