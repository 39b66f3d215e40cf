-- Sets the idempotency key of a job that has none. headgate stores the key in the field `name` of
-- the job's hash. All attempts of a job have the same key. A later job with the same ID has another
-- key.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- ARGV[1] idempotency key for a job that has none
-- Returns the job's key, or asynq's error NOT FOUND if the job does not exist
local hash, name = KEYS[1], ARGV[1]

if redis.call('EXISTS', hash) == 0 then return redis.error_reply('NOT FOUND') end
redis.call('HSETNX', hash, 'name', name)
return redis.call('HGET', hash, 'name')
