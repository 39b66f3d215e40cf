-- Takes up to n jobs from the head of a queue, as asynq's dequeue script does. While a job is
-- active, the field pending_since of its hash holds the name of the job's dequeue. An extension of
-- the job's Unique lock is undone: see restore_unique.lua. Safe to repeat: a repeat of the same
-- call returns the jobs that it took before. If their messages have too many bytes by then, the last
-- of them go back to the head of the queue.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:paused
-- KEYS[3] asynq:{queue}:active
-- KEYS[4] asynq:{queue}:lease
-- KEYS[5] asynq:{queue}:headgate, the marker for which idle servers wait
-- KEYS[6] asynq:{queue}:headgate_pass, which exists during a rest: see ARGV[7]
-- ARGV[1] end of the jobs' leases, Unix second
-- ARGV[2] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[3] n, the most jobs to take
-- ARGV[4] name of this dequeue: a time in nanoseconds; only repeats of the call have the same name
-- ARGV[5] attempt: 1 when the call is sent for the first time, more in a repeat
-- ARGV[6] 1 if a marker was consumed for this call; another marker is then set if jobs are left
-- ARGV[7] rest: 0 takes any jobs. -1 takes only those jobs at the head of the queue that have the
--   field `denied`. A positive number takes any jobs, and starts a rest of as many milliseconds;
--   while an earlier rest lasts, it takes only jobs with the field. Servers with a large backlog
--   use rests, so that Redis has time for other commands
-- ARGV[8] the most bytes of all messages together. One job is returned whatever its size
-- Returns three values for each job, in the order in which the jobs run: its ID, its message, and 1
--   if its hash has the field `denied`, else ''; then 1 if jobs were left because of ARGV[8].
--   Returns nil if no job was taken
-- @include restore_unique
local pending, paused, active, lease, marker, pass = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local ends, prefix, n, name, attempt, woken, rest = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local max_bytes = tonumber(ARGV[8])

local call = redis.call
local jobs, bytes = {}, 0
local left = {} -- jobs beyond max_bytes; the first to run is last, because asynq pops from the right

-- Adds a job to the result. If the job does not fit, adds it to `left` and returns false.
local function add(id, msg, denied)
  bytes = bytes + #msg
  if left[1] or jobs[1] and bytes > max_bytes then
    table.insert(left, 1, id)
    return false
  end
  jobs[#jobs + 1], jobs[#jobs + 2], jobs[#jobs + 3] = id, msg, denied and '1' or ''
  return true
end

-- Puts the jobs in `left` back to the head of the queue.
local function put_left()
  if not left[1] then return end
  call('RPUSH', pending, unpack(left))
  jobs[#jobs + 1] = '1'
end

if attempt ~= '1' then -- return the jobs that this call took before
  local msgs = {}
  for _, id in ipairs(call('ZRANGEBYSCORE', lease, ends, ends)) do
    local taken_by, msg, denied = unpack(call('HMGET', prefix .. id, 'pending_since', 'msg', 'denied'))
    if taken_by == name then msgs[id] = { msg, denied } end
  end
  local ids = next(msgs) and call('LRANGE', active, 0, -1) or {} -- the job taken last is in front
  for i = #ids, 1, -1 do
    local id, found = ids[i], msgs[ids[i]]
    if found and not add(id, found[1], found[2]) then
      call('LREM', active, 0, id)
      call('ZREM', lease, id)
      call('HSET', prefix .. id, 'state', 'pending')
      call('ZADD', marker, 0, '0')
    end
  end
  put_left()
  if #jobs > 0 then return jobs end
end
if n == '0' or call('EXISTS', paused) == 1 then return nil end

local most = n
if rest == '-1' or rest ~= '0' and not call('SET', pass, '', 'NX', 'PX', rest) then
  local ids = call('LRANGE', pending, -n, -1)
  most = 0
  while ids[#ids - most] and call('HEXISTS', prefix .. ids[#ids - most], 'denied') == 1 do most = most + 1 end
  if most == 0 then return nil end
end

local taken, leases = {}, {}
for _, id in ipairs(call('RPOP', pending, most) or {}) do
  local hash = prefix .. id
  local kept = redis.pcall('HMGET', hash, 'msg', 'lock_ms', 'denied')
  local msg, lock_ms = kept[1], kept[2]
  if not msg then
    call('DEL', hash) -- a job without a message cannot run
  elseif add(id, msg, kept[3]) then
    if lock_ms then restore_unique(hash, id, lock_ms) end
    call('HSET', hash, 'state', 'active', 'pending_since', name)
    taken[#taken + 1] = id
    leases[#leases + 1], leases[#leases + 2] = ends, id
  end
end
put_left()
if not taken[1] then return nil end
call('LPUSH', active, unpack(taken))
call('ZADD', lease, unpack(leases))
if woken == '1' and (left[1] or #taken == tonumber(n)) and call('EXISTS', pending) == 1 then call('ZADD', marker, 0, '0') end
return jobs
