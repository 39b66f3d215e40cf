-- Extends the leases of jobs, as asynq does for those that a server runs. It leaves out jobs that
-- have another lease by now, or none.
-- KEYS[1] asynq:{queue}:lease
-- KEYS[2…] asynq:{queue}:t:{id}, the hash of each job
-- ARGV[1] unix second until which
-- ARGV[2…] ID of each job, and the name of the dequeue that took it
-- Returns how many of the jobs have the lease that is meant
-- @include lease
local lease, ends = KEYS[1], ARGV[1]

local extended = 0
for i = 2, #ARGV, 2 do
  local id, name = ARGV[i], ARGV[i + 1]
  if is_lease(KEYS[i / 2 + 1], lease, id, name, '') then
    redis.call('ZADD', lease, 'XX', ends, id)
    extended = extended + 1
  end
end
return extended
