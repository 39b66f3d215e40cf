-- Takes up to n jobs from the head of a queue. The effects on each job are those of asynq's
-- script Dequeue, except that pending_since is not removed: while a job is active, pending_since
-- names the call that took the job. A Unique lock that was extended for a wait gets its remaining
-- time back, also if the job was run by hand.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:paused
-- KEYS[3] asynq:{queue}:active
-- KEYS[4] asynq:{queue}:lease
-- KEYS[5] asynq:{queue}:headgate, where servers wait for jobs
-- ARGV[1] unix second at which the jobs' leases end
-- ARGV[2] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[3] n, the most jobs to take
-- ARGV[4] name of the call: a time in nanoseconds, which only repeats of this call share
-- ARGV[5] number of times that this call was sent, this time included
-- ARGV[6] 1 if a marker was consumed for this call: if jobs are left, another marker is set
-- Returns three values for each job, the first job to run in front: its ID, its message, and 1 if
--   it was put back since it was enqueued, or else an empty text. Returns nil if there is no job.
--   A repeated call returns the jobs that it took before. A job without a message is deleted
-- @include let_unique
local pending, paused, active, lease, marker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ends, prefix, n, caller, sent, woken = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local call = redis.call
local jobs = {}

if sent ~= '1' then -- jobs that this call took before and that were not moved since
  local msgs = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', lease, ends, ends)) do
    local by, msg, denied = unpack(call('HMGET', prefix .. id, 'pending_since', 'msg', 'denied'))
    if by == caller then msgs[id] = { msg, denied and '1' or '' } end
  end
  local ids = next(msgs) and call('LRANGE', active, 0, -1) or {} -- the job taken last is in front
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
