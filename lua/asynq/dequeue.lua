-- Takes jobs from the head of a queue, as many as a server has free slots, with the
-- effects of asynq's script Dequeue on each; but that pending_since is not removed: while
-- a job is active it says which call took it. A Unique lock that still outlasts a wait, as
-- of a job that was run by hand, goes on as when its job is called.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:paused
-- KEYS[3] asynq:{queue}:active
-- KEYS[4] asynq:{queue}:lease
-- KEYS[5] asynq:{queue}:headgate, where servers wait for jobs
-- ARGV[1] unix second at which the jobs' leases end
-- ARGV[2] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[3] how many at most
-- ARGV[4] call: a time in nanoseconds, which only repeats of this very call share
-- ARGV[5] how often it was sent, with this time
-- ARGV[6] 1 if the mark of who made a job pending was used up for this call: where jobs are
--   left another server hears of them
-- Returns ID and message of each job, and 1 if it was put back since it was enqueued or else an
--   empty text, the first to run in front; nil if there is none.
--   Sent again it returns what it took before, if it did. A job that has no message is
--   dropped
-- @include let_unique
local pending, paused, active, lease, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ends, prefix, n, caller, sent, woken = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local call = redis.call
local jobs = {}

if sent ~= '1' then -- those that this call took before, and nobody has moved since
  local msgs = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', lease, ends, ends)) do
    local by, msg, denied = unpack(call('HMGET', prefix .. id, 'pending_since', 'msg', 'denied'))
    if by == caller then msgs[id] = { msg, denied and '1' or '' } end
  end
  local ids = next(msgs) and call('LRANGE', active, 0, -1) or {} -- the last taken in front
  for i = #ids, 1, -1 do
    local found = msgs[ids[i]]
    if found then jobs[#jobs + 1], jobs[#jobs + 2], jobs[#jobs + 3] = ids[i], found[1], found[2] end
  end
  if #jobs > 0 then return jobs end
end
if n == '0' or call('EXISTS', paused) == 1 then return nil end

local taken, leases = {}, {}
for _, id in ipairs(call('RPOP', pending, n) or {}) do
  local hash = prefix .. id
  local kept = redis.pcall('HMGET', hash, 'msg', 'lock_ms', 'denied')
  local msg, lock_ms = kept[1], kept[2]
  if msg then
    if lock_ms then let_unique(hash, id, lock_ms) end
    call('HSET', hash, 'state', 'active', 'pending_since', caller)
    taken[#taken + 1] = id
    leases[#leases + 1], leases[#leases + 2] = ends, id
    jobs[#jobs + 1], jobs[#jobs + 2], jobs[#jobs + 3] = id, msg, kept[3] and '1' or ''
  else
    call('DEL', hash) -- nothing can run it, and its ID is free again
  end
end
if not taken[1] then return nil end
call('LPUSH', active, unpack(taken))
call('ZADD', lease, unpack(leases))
if woken == '1' and #taken == tonumber(n) and call('EXISTS', pending) == 1 then call('ZADD', marker, 0, '0') end
return jobs
