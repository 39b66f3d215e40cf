-- Has the active list and the leases of a queue tell of the same jobs, if Redis has lost entries
-- of one. An active job without a lease gets one: a worker that runs the job extends it, and
-- else the job counts as crashed when it has ended. A lease without an active job goes, unless
-- the job's hash says that it is active.
-- KEYS[1] asynq:{queue}:active
-- KEYS[2] asynq:{queue}:lease
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] unix second at which new leases end
-- Returns of how many jobs an entry was missing
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
