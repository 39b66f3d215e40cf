-- Records an ended attempt of a job in the field `attempts` of the job's hash. headgate adds this
-- field to asynq's hash. The field holds the last attempts, one on each line.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- ARGV[1] the attempt as one line of text
-- ARGV[2] largest number of attempts to keep
-- Returns 1 if the attempt is recorded, now or by an earlier call; 0 if the job does not exist
local hash = KEYS[1]
local attempt, max_attempts = ARGV[1], tonumber(ARGV[2])

if redis.call('EXISTS', hash) == 0 then return 0 end
local lines = {}
for line in string.gmatch(redis.call('HGET', hash, 'attempts') or '', '[^\n]+') do
  if line == attempt then return 1 end
  lines[#lines + 1] = line
end
lines[#lines + 1] = attempt
redis.call('HSET', hash, 'attempts', table.concat(lines, '\n', math.max(1, #lines - max_attempts + 1)))
return 1
