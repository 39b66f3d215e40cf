-- Lets one server order the pending jobs of a queue: the first one, until it has not called for a while.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:headgate_orders, the name of the server that orders the jobs
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] name of this server
-- ARGV[3] for how long no other server orders the jobs, milliseconds
-- ARGV[4] the most granted jobs to count
-- Returns the number of granted jobs at the head of the queue, or -1 if another server orders the
--   jobs
-- @include denied
local pending, orders = KEYS[1], KEYS[2]
local prefix, server, ms, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local call = redis.call
if (call('GET', orders) or server) ~= server then return -1 end
call('SET', orders, server, 'PX', ms)
local granted = 0
local function is_granted()
  local id = granted < most and call('LINDEX', pending, -1 - granted)
  return id and redis.pcall('HGET', prefix .. id, 'denied') == PROMOTED
end
while is_granted() do granted = granted + 1 end
return granted
