-- Retries a job whose worker has crashed, if the job's workers have not crashed too often before.
-- headgate counts these crashes in the field `crashes` of the job's hash.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:retry
-- ARGV[1] ID of the job
-- ARGV[2] new message of the job, with the error
-- ARGV[3] time of the retry: now, Unix second
-- ARGV[4] seconds that the job's Unique lock, if it has one, must last
-- ARGV[5] number of crashes after which a further crash is not retried
-- ARGV[6] the expected lease: `name` of lease.lua
-- ARGV[7] the expected lease: `ended` of lease.lua
-- Returns 1 if the job is retried; 0, without a change, if its workers have crashed too often;
--   asynq's error NOT FOUND if the job is not active or has another lease
-- @include put_back
local hash, active, lease, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, msg, at, lock_seconds, max_crashes = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local name, ended = ARGV[6], ARGV[7]

if tonumber(redis.call('HGET', hash, 'crashes') or 0) >= max_crashes then return 0 end
local is_removed, lock = remove_active(active, lease, hash, id, name, ended)
if not is_removed then return redis.error_reply('NOT FOUND') end
move_to_retry(lease, retry, { id }, { at, id })
write_retry(hash, id, msg, at, lock_seconds, '', lock)
redis.call('HINCRBY', hash, 'crashes', 1)
return 1
