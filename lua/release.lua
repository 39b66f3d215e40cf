-- Moves called jobs from asynq's retry or scheduled set to the head of their
-- queue's pending list, behind those called before. The one script that knows
-- asynq's private layout; the field `called` in a task's hash is our own.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:retry
-- KEYS[3] asynq:{queue}:scheduled
-- ARGV[1] prefix of a task's hash, asynq:{queue}:t:
-- ARGV[2] the time in nanoseconds, by the caller's clock as everywhere in asynq
-- ARGV[3…] jobs, the one to run first in front
-- Returns for each job: moved, active (its handler has not returned), pending
--   already, done (archived or completed), or gone
local pending, retry, scheduled = KEYS[1], KEYS[2], KEYS[3]
local task, now_ns = ARGV[1], ARGV[2]
local call = redis.call

local sets = { retry = retry, scheduled = scheduled }

local out, moved = {}, {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local state = call('HGET', task .. id, 'state')
  local fate = 'done'
  if not state then
    fate = 'gone'
  elseif sets[state] and call('ZREM', sets[state], id) == 1 then
    call('HSET', task .. id, 'state', 'pending', 'pending_since', now_ns, 'called', '1')
    moved[#moved + 1] = id
    fate = 'moved'
  elseif state == 'active' or state == 'pending' then
    fate = state
  end
  out[i - 2] = fate
end
if #moved == 0 then return out end

-- asynq pops from the right. Beyond 64 the workers cannot keep up, and order
-- matters less than the cost of keeping it.
local line = {}
while #line < 64 do
  local id = call('LINDEX', pending, -1 - #line)
  if not id or call('HEXISTS', task .. id, 'called') == 0 then break end
  line[#line + 1] = id
end
if #line > 0 then call('LTRIM', pending, 0, -1 - #line) end
for i = 1, #moved do line[#line + 1] = moved[i] end
local push = {}
for i = #line, 1, -1 do push[#push + 1] = line[i] end
call('RPUSH', pending, unpack(push))
return out
