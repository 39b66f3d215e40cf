-- Repairs asynq's lists and sets after Redis has lost entries. Each given job is added to the list
-- or set that fits the state in its hash, if it is missing there. A denied job is added with its
-- own retry time. Other retried or scheduled jobs are added as due now, because their time is lost.
-- A job that is not active leaves the active list and the leases. An active job that was not in its
-- list leaves the other sets: a crash of Redis can leave a script's writes half done, and asynq cannot
-- end a job that is in the completed set already. A job without a message is deleted after the end of
-- its lease, so that its ID can be used again.
-- KEYS[1] asynq:{queue}:pending
-- KEYS[2] asynq:{queue}:active
-- KEYS[3] asynq:{queue}:lease
-- KEYS[4] asynq:{queue}:retry
-- KEYS[5] asynq:{queue}:scheduled
-- KEYS[6] asynq:{queue}:archived
-- KEYS[7] asynq:{queue}:completed
-- KEYS[8] asynq:{queue}:headgate, the marker for which idle servers wait
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] now, Unix second
-- ARGV[3] seconds that a new lease lasts
-- ARGV[4] seconds from now for which a restored completed job is kept
-- ARGV[5…] IDs of the jobs to look at
-- Returns the number of corrected entries (one job can have several), and the IDs of the
-- active jobs that left because they have no message
local pending, active, lease, retry, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local archived, completed, marker = KEYS[6], KEYS[7], KEYS[8]
local prefix, now, lasts, kept = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Missing jobs are searched for only in a list of at most this many pending jobs.
local LONGEST = 20000
local restored, lost, sets = 0, {}, {}

-- Returns the IDs of a list as a set. Each list is read once.
local function set_of(list)
  if not sets[list] then
    sets[list] = {}
    for _, id in ipairs(redis.call('LRANGE', list, 0, -1)) do sets[list][id] = true end
  end
  return sets[list]
end

local function restore_score(set, id, score)
  restored = restored + redis.call('ZADD', set, 'NX', string.format('%d', score), id)
end

local function leave_sets(id)
  for _, set in ipairs({ retry, scheduled, archived, completed }) do redis.call('ZREM', set, id) end
end

local function restore_active(id)
  if not set_of(active)[id] then
    sets[active][id] = true
    leave_sets(id)
    redis.call('LPUSH', active, id)
    redis.call('ZADD', lease, 'NX', string.format('%d', now + lasts), id)
    restored = restored + 1
  else
    restore_score(lease, id, now + lasts)
  end
end

local function leave_active(id)
  local left = redis.call('ZREM', lease, id)
  if set_of(active)[id] then left = redis.call('LREM', active, 0, id) end
  return math.min(left, 1)
end

-- asynq pops from the right end of the list. The oldest jobs are near this end, next to at most 64
-- promoted jobs. The whole list is searched only for a job that is older than each of the 65
-- rightmost jobs. A later call finds a younger lost job, after workers have taken the older jobs.
local oldest_at_head = math.huge
for _, id in ipairs(redis.call('LRANGE', pending, -65, -1)) do
  local since = redis.pcall('HGET', prefix .. id, 'pending_since')
  oldest_at_head = math.min(oldest_at_head, type(since) == 'string' and tonumber(since) or oldest_at_head)
end
local can_search = redis.call('LLEN', pending) <= LONGEST

local lost_pending = {}
local states = {
  active = restore_active,
  pending = function(id, since)
    since = tonumber(since or nil) or 0
    if can_search and since < oldest_at_head and not set_of(pending)[id] then
      sets[pending][id] = true
      lost_pending[#lost_pending + 1] = { id, since }
    end
  end,
  retry = function(id, _, denied) restore_score(retry, id, tonumber(denied or nil) or now) end,
  scheduled = function(id) restore_score(scheduled, id, now) end,
  archived = function(id) restore_score(archived, id, now) end,
  completed = function(id) restore_score(completed, id, now + kept) end,
}

for i = 5, #ARGV do
  local id, hash = ARGV[i], prefix .. ARGV[i]
  local msg, state, since, denied = unpack(redis.pcall('HMGET', hash, 'msg', 'state', 'pending_since', 'denied'))
  if msg and states[state] then
    if state ~= 'active' then restored = restored + leave_active(id) end
    states[state](id, since, denied)
  elseif msg == false and tonumber(redis.call('ZSCORE', lease, id) or 0) < now then
    redis.call('DEL', hash)
    if leave_active(id) == 1 then lost[#lost + 1] = id end
    leave_sets(id)
  end
end
table.sort(lost_pending, function(a, b) return a[2] > b[2] end) -- the oldest job goes to the right end, where asynq pops
for _, job in ipairs(lost_pending) do redis.call('RPUSH', pending, job[1]) end
if lost_pending[1] then redis.call('ZADD', marker, 0, '0') end
return { restored + #lost_pending, lost }
