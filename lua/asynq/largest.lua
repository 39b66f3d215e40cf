-- Finds the largest job on a page of one of asynq's lists or sets, so that a reader asks for no more
-- jobs at once than fit into a reply.
-- KEYS[1] list or sorted set of a queue, such as asynq:{queue}:pending
-- KEYS[2] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[1] index of the first job. A list has its first job at the right end
-- ARGV[2] index of the last job
-- Returns the bytes of the message and the result of the largest job, or 0 if there is no job
local key, prefix = KEYS[1], KEYS[2]
local first, last = tonumber(ARGV[1]), tonumber(ARGV[2])

local ids
if redis.call('TYPE', key).ok == 'list' then
  ids = redis.call('LRANGE', key, -last - 1, -first - 1)
else
  ids = redis.call('ZRANGE', key, first, last)
end
local largest = 0
for _, id in ipairs(ids) do
  local hash = prefix .. id
  largest = math.max(largest, redis.call('HSTRLEN', hash, 'msg') + redis.call('HSTRLEN', hash, 'result'))
end
return largest
