-- Opens a batch, or registers a queue for jobs of the batch.
-- KEYS[1] asynq:headgate_batch:{name}, the batch's hash
-- ARGV[1] the queue, or ''
-- ARGV[2] now, Unix ms
-- ARGV[3] seconds until the batch is forgotten, from now
-- ARGV[4] '1' if a job of the batch adds jobs: a closed batch then stays closed, and a missing one stays missing
-- ARGV[5] encoded message of the batch's follow-up, or ''
-- ARGV[6] queue of the follow-up
-- Returns open, ended or missing
local batch = KEYS[1]
local queue, now, kept, inside, follow_up, follow_up_queue = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5], ARGV[6]
local call = redis.call

if call('HEXISTS', batch, 'ended') == 1 then return 'ended' end
if inside and call('EXISTS', batch) == 0 then return 'missing' end
call('HSETNX', batch, 'opened', now)
local changed = queue ~= '' and call('HSETNX', batch, 'queue:' .. queue, 0) == 1
if not inside and call('HDEL', batch, 'closed') == 1 then changed = true end
if changed then call('HINCRBY', batch, 'version', 1) end
if follow_up ~= '' then call('HSET', batch, 'follow_up', follow_up, 'follow_up_queue', follow_up_queue) end
call('EXPIRE', batch, kept)
return 'open'
