-- Moves called jobs from asynq's retry or scheduled set to the head of their
-- queue's pending list. The one script that knows asynq's private layout.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:retry
-- KEYS[3] asynq:{queue}:scheduled
-- ARGV[1] prefix of a task's hash, asynq:{queue}:t:
-- ARGV[2…] jobs, the one to run first in front
-- Returns for each job: moved, active (its handler has not returned), pending
--   already, done (archived or completed), or gone
local pending, retry, scheduled = KEYS[1], KEYS[2], KEYS[3]
local task = ARGV[1]
local sets = { retry = retry, scheduled = scheduled }

local time = redis.call('TIME')
local now_ns = time[1] .. string.format('%06d', time[2]) .. '000'
local out, heads = {}, {}
for i = 2, #ARGV do
  local key = task .. ARGV[i]
  local state = redis.call('HGET', key, 'state')
  local fate = 'done'
  if not state then
    fate = 'gone'
  elseif sets[state] and redis.call('ZREM', sets[state], ARGV[i]) == 1 then
    redis.call('HSET', key, 'state', 'pending', 'pending_since', now_ns)
    table.insert(heads, 1, ARGV[i])
    fate = 'moved'
  elseif state == 'active' or state == 'pending' then
    fate = state
  end
  out[i - 1] = fate
end
if #heads > 0 then redis.call('RPUSH', pending, unpack(heads)) end
return out
