-- Notes how an attempt of a job has ended. The field `attempts` of the job's hash, which has
-- the last of them, one a line, is ours.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- ARGV[1] the attempt, a line
-- ARGV[2] how many are kept
-- Returns 1, also if that was noted before, or 0 if there is no such job any more
local hash = KEYS[1]
local attempt, most = ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', hash) == 0 then return 0 end
local lines = {}
for line in string.gmatch(redis.call('HGET', hash, 'attempts') or '', '[^\n]+') do
  if line == attempt then return 1 end
  lines[#lines + 1] = line
end
lines[#lines + 1] = attempt
redis.call('HSET', hash, 'attempts', table.concat(lines, '\n', math.max(1, #lines - most + 1)))
return 1
