-- Ends the lease of a job that is done, and keeps the job for its retention. asynq has no retention
-- for the job, so asynq's own script would delete it. The keys from the second on are those
-- of asynq's script.
-- KEYS[1] asynq:{queue}:completed
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] the job's hash
-- KEYS[5] asynq:{queue}:processed:<day>
-- KEYS[6] asynq:{queue}:processed
-- KEYS[7] the job's Unique lock, if it has one
-- ARGV[1] ID of the job
-- ARGV[2] seconds for which the count of the day is kept
-- ARGV[3] count at which the count of all days starts again
-- ARGV[4] Unix second until which the job is kept
-- ARGV[5] the job's message
-- ARGV[6] name of the expected lease: see include/lease.lua
-- ARGV[7] ended of the expected lease
-- ARGV[8] key of the job's batch in its queue, or ''
-- Returns OK, or the error of asynq's script for a job that is not active
-- @include lease
-- @include end_in_batch
local completed, active, lease, hash, today, total, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, day_kept, highest, kept_until = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local msg, name, ended, batch = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local call = redis.call

local matches, is_active = is_lease(hash, lease, id, name, ended)
if not matches then return redis.error_reply('NOT FOUND') end
local left = call('LREM', active, 0, id) + call('ZREM', lease, id)
if left == 0 and not is_active then return redis.error_reply('NOT FOUND') end
call('ZADD', completed, kept_until, id)
call('HSET', hash, 'msg', msg, 'state', 'completed')
if call('INCR', today) == 1 then call('EXPIRE', today, day_kept) end
if call('GET', total) == highest then call('SET', total, 0) end
call('INCR', total)
if lock and call('GET', lock) == id then call('DEL', lock) end
if batch ~= '' then end_in_batch(batch, id, '1') end
return redis.status_reply('OK')
