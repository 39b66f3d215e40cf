-- Extends the leases of running jobs, as asynq does. A job that another dequeue took since, or that
-- is not active any more, is skipped.
-- KEYS[1] asynq:{queue}:lease
-- KEYS[2…] asynq:{queue}:t:{id}, the hash of each job
-- ARGV[1] new end of the leases, Unix second
-- ARGV[2…] for each job its ID, and the name of the dequeue that took it
-- Returns the IDs of the skipped jobs
-- @include lease
local lease, ends = KEYS[1], ARGV[1]

local lost = {}
for i = 2, #ARGV, 2 do
  local id, name = ARGV[i], ARGV[i + 1]
  if is_lease(KEYS[i / 2 + 1], lease, id, name, '0') then
    redis.call('ZADD', lease, 'XX', ends, id)
  else
    lost[#lost + 1] = id
  end
end
return lost
