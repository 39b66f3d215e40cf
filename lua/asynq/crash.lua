-- Puts a job back whose worker died, unless that has happened too often. The
-- field `crashes` of the job's hash, which counts them, is ours.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:retry
-- ARGV[1] id
-- ARGV[2] its message, which says why
-- ARGV[3] unix second at which it comes back: now
-- ARGV[4] seconds that its Unique lock must hold for; 0 if it has none
-- ARGV[5] how many crashes are forgiven
-- ARGV[6] the lease that it must have, see is_lease: name of its dequeue, or empty
-- ARGV[7] unix second by which that lease has ended, or empty
-- Returns 1, 0 if no more are forgiven and nothing was done, or asynq's error
--   NOT FOUND if the job is not active, or under another lease
-- @include put_back
local hash, active, lease, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, msg, at, seconds, forgiven = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local name, ended = ARGV[6], ARGV[7]

if tonumber(redis.call('HGET', hash, 'crashes') or 0) >= forgiven then return 0 end
if not take_back(active, lease, hash, id, name, ended) then return redis.error_reply('NOT FOUND') end
into_retry(lease, retry, { id }, { at, id })
put_back(hash, id, msg, at, seconds, '')
redis.call('HINCRBY', hash, 'crashes', 1)
return 1
