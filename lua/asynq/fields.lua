-- Reads a field of jobs' hashes, such as asynq's state.
-- KEYS[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[1] field
-- ARGV[2…] IDs
-- Returns the field of each job, '' if it is missing
local prefix = KEYS[1]
local field = ARGV[1]

local values = {}
for i = 2, #ARGV do values[i - 1] = redis.call('HGET', prefix .. ARGV[i], field) or '' end
return values
