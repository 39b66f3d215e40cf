-- Gives a job a name that all its attempts share, and no later job of its ID. The
-- field `name` of the job's hash, which goes with the job, is ours.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- ARGV[1] the name, if it has none yet
-- Returns its name, or asynq's error NOT FOUND if the job is gone
local hash, name = KEYS[1], ARGV[1]

if redis.call('EXISTS', hash) == 0 then return redis.error_reply('NOT FOUND') end
redis.call('HSETNX', hash, 'name', name)
return redis.call('HGET', hash, 'name')
