-- Reads a field, such as asynq's state, from the hashes of several jobs.
-- KEYS[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[1] name of the field
-- ARGV[2…] IDs of the jobs
-- Returns the value of the field for each job, '' if the job or the field is missing
local prefix = KEYS[1]
local field = ARGV[1]

local values = {}
for i = 2, #ARGV do values[i - 1] = redis.call('HGET', prefix .. ARGV[i], field) or '' end
return values
