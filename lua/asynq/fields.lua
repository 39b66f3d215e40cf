-- Reads a field, such as asynq's state, from the hashes of several jobs.
-- KEYS[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[1] name of the field
-- ARGV[2] the most bytes of all values together. One value is returned whatever its size
-- ARGV[3…] IDs of the jobs
-- Returns the values of the first jobs, '' if the job or the field is missing
local prefix = KEYS[1]
local field, max_bytes = ARGV[1], tonumber(ARGV[2])

local values, bytes = {}, 0
for i = 3, #ARGV do
  local value = redis.pcall('HGET', prefix .. ARGV[i], field) -- an error if a key is no hash
  if type(value) ~= 'string' then value = '' end
  bytes = bytes + #value
  if values[1] and bytes > max_bytes then break end
  values[#values + 1] = value
end
return values
