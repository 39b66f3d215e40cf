-- Sets fields of a batch, if nothing has been added to the batch since the caller read it.
-- KEYS[1] asynq:headgate_batch:{name}, the batch's hash
-- ARGV[1] the version that the caller read
-- ARGV[2] seconds until the batch is forgotten, from now
-- ARGV[3…] names and values of the fields
-- Returns 1; 0 if the batch has another version or is missing
local batch = KEYS[1]
local version, kept = ARGV[1], ARGV[2]

if redis.call('EXISTS', batch) == 0 or (redis.call('HGET', batch, 'version') or '') ~= version then return 0 end
for i = 3, #ARGV, 2 do redis.call('HSET', batch, ARGV[i], ARGV[i + 1]) end
redis.call('EXPIRE', batch, kept)
return 1
