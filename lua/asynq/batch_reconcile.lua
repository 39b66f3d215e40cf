-- Looks at jobs of a batch that have not ended as far as the batch knows, and notes how those ended
-- that others have ended: an operator, or a server without headgate.
-- KEYS[1] asynq:{queue}:headgate_batch:<name>
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] most jobs to look at
-- Returns how many of these jobs have ended
-- @include end_in_batch
local batch = KEYS[1]
local prefix, most = ARGV[1], ARGV[2]

local ended = 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', batch, 0, 0, 'LIMIT', 0, most)) do
  local state = redis.pcall('HGET', prefix .. id, 'state')
  local as = state == 'completed' and '1' or state == 'archived' and '2'
  if state == false and redis.call('EXISTS', prefix .. id) == 0 then as = '3' end
  if as then
    end_in_batch(batch, id, as)
    ended = ended + 1
  end
end
return ended
