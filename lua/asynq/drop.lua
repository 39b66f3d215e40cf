-- Drops a job from which Redis has lost the message: nothing can run it, and its ID is free
-- again.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- ARGV[1] id
-- ARGV[2] unix second by which its lease has ended
-- Returns 1, or 0 if it has a message, or another lease
-- @include lease
local hash, active, lease = KEYS[1], KEYS[2], KEYS[3]
local id, ended = ARGV[1], ARGV[2]

local msg = redis.pcall('HGET', hash, 'msg')
if type(msg) == 'string' or not is_lease(hash, lease, id, '', ended) then return 0 end
redis.call('LREM', active, 0, id)
redis.call('ZREM', lease, id)
redis.call('DEL', hash)
return 1
