-- Says in which state asynq keeps jobs.
-- KEYS[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[1…] IDs
-- Returns for each the state, and an empty text if there is no such job
local prefix = KEYS[1]

local states = {}
for i = 1, #ARGV do
  states[i] = redis.call('HGET', prefix .. ARGV[i], 'state') or ''
end
return states
