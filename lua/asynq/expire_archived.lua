-- Deletes the oldest jobs that were archived before a time. A job that is no longer archived keeps
-- its hash.
-- KEYS[1] asynq:{queue}:archived
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] Unix second
-- ARGV[3] most jobs to delete, 1000 at most
-- Returns the number of jobs
local archived, prefix, before, most = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local ids = redis.call('ZRANGEBYSCORE', archived, '-inf', '(' .. before, 'LIMIT', 0, most)
for _, id in ipairs(ids) do
  if redis.call('HGET', prefix .. id, 'state') == 'archived' then redis.call('DEL', prefix .. id) end
end
if ids[1] then redis.call('ZREM', archived, unpack(ids)) end
return #ids
