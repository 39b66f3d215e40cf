-- Lists the denied jobs that asynq itself would bring back before a moment.
-- KEYS[1] asynq:{queue}:retry
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] unix second, or +inf for all
-- ARGV[3] how many jobs of the retry set to pass over
-- ARGV[4] how many to look at
-- Returns how many were looked at, and the IDs of those that were denied, the
--   earliest first
-- Reports whether a job waits in asynq's retry set because it was denied. The
-- field `denied` of its hash is ours and says until when it was put back; one
-- that failed since has another score.
local function denied(retry, hash, id)
  local at = redis.call('HGET', hash, 'denied')
  return at and tonumber(redis.call('ZSCORE', retry, id) or -1) == tonumber(at)
end
local retry = KEYS[1]
local prefix, before, offset, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local ids = redis.call('ZRANGEBYSCORE', retry, '-inf', '(' .. before, 'LIMIT', offset, count)
local reply = { #ids }
for _, id in ipairs(ids) do
  if denied(retry, prefix .. id, id) then reply[#reply + 1] = id end
end
return reply
