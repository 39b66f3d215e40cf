-- Makes the active list and the leases of a queue contain the same jobs, after Redis has lost
-- entries of one of them. An active job without a lease gets a lease. If a worker runs the job, the
-- worker extends the lease; otherwise the job counts as crashed when the lease ends. A lease without
-- an active job is deleted, unless the state in the job's hash is active.
-- KEYS[1] asynq:{queue}:active
-- KEYS[2] asynq:{queue}:lease
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] unix second at which new leases end
-- Returns the number of jobs that lacked an entry
local active, lease = KEYS[1], KEYS[2]
local prefix, ends = ARGV[1], ARGV[2]

local missing, listed = 0, {}
for _, id in ipairs(redis.call('LRANGE', active, 0, -1)) do
  listed[id] = true
  missing = missing + redis.call('ZADD', lease, 'NX', ends, id)
end
for _, id in ipairs(redis.call('ZRANGE', lease, 0, -1)) do
  if not listed[id] then
    local state = redis.pcall('HGET', prefix .. id, 'state')
    if state == 'active' then redis.call('LPUSH', active, id) else redis.call('ZREM', lease, id) end
    missing = missing + 1
  end
end
return missing
