-- Extends the leases of running jobs, as asynq does. A job without a lease, or with the lease of
-- another dequeue, is skipped.
-- KEYS[1] asynq:{queue}:lease
-- KEYS[2…] asynq:{queue}:t:{id}, the hash of each job
-- ARGV[1] new end of the leases, Unix second
-- ARGV[2…] for each job its ID, and the name of the dequeue that took it
-- Returns the number of extended leases
-- @include lease
local lease, ends = KEYS[1], ARGV[1]

local extended = 0
for i = 2, #ARGV, 2 do
  local id, name = ARGV[i], ARGV[i + 1]
  if is_lease(KEYS[i / 2 + 1], lease, id, name, '0') then
    redis.call('ZADD', lease, 'XX', ends, id)
    extended = extended + 1
  end
end
return extended
