-- Notes how an attempt of a job has ended: in the field `attempts` of its hash, which has the
-- last of them, one a line, and in `stood` since when it stood in its lane. Both are ours.
-- KEYS[1] asynq:{queue}:t:{id}, the job's hash
-- ARGV[1] the attempt, a line, or '' for none
-- ARGV[2] how many are kept
-- ARGV[3] since when it stood, or '' to leave that
-- Returns 1, or 0 if there is no such job any more
local hash = KEYS[1]
local attempt, most, stood = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if redis.call('EXISTS', hash) == 0 then return 0 end
if stood ~= '' then redis.call('HSET', hash, 'stood', stood) end
if attempt == '' then return 1 end
local lines = {}
for line in string.gmatch(redis.call('HGET', hash, 'attempts') or '', '[^\n]+') do lines[#lines + 1] = line end
lines[#lines + 1] = attempt
redis.call('HSET', hash, 'attempts', table.concat(lines, '\n', math.max(1, #lines - most + 1)))
return 1
