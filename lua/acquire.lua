-- Takes a job's permits, or has it wait in its lane until it is called.
-- Safe to repeat: the same call again gets the same answer, and a job that waits
-- keeps its place. A newcomer takes nothing of a meter that is contended: such
-- meters give through the lanes' turns only.
-- Touches: admitted (rw), blocked (r), called (rw), changes (w),
--   contended (rw), deleted (r), demand (rw), full (w), jobs (rw), lane (rw),
--   lanes (rw), limit (r), m (rw), overrides (r), patience (w), reserved (rw),
--   seq (w), sharing (rw), tickets (w), turns (r), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue it comes from and is called back to
-- ARGV[2] ID of the job
-- ARGV[3] app that asks
-- ARGV[4] caller: a name of who makes one call at a time
-- ARGV[5] number of its call, which only repeats of this very call share
-- ARGV[6] tickets of head start: 0 normal, negative earlier, positive later
-- ARGV[7] longest wait in microseconds, from its first denial, or -1 for any
-- ARGV[8] microseconds until it is of no use any more, or -1 for never
-- ARGV[9] how long permits are reserved for it once it is called, in microseconds
-- ARGV[10…] limit, key, cost for each need, sorted by limit and key
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us, known}, where time_us is the shortest lease or
--   0 if allowed, and if denied how long to put the job back for; known is 0
--   where nobody can tell when it will run. If allowed, instead of that, whether
--   the limiter is to hear how the call goes, until when each funnel owes; and of
--   a job that waited since when, how often it was denied, and since when its
--   permits exist or 0. {6, names, now_us} where calendars must be extended
-- @include needs
local queue, id, app, caller, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local head_start, max_wait_us, useful_us, grant_us = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local name = queue .. '\n' .. id
local admitted = hg('admitted', caller)

local meters, refusal = load_needs(10, app, name .. '\n' .. caller .. ':' .. number)

local waited = call('EXISTS', hg('jobs')) == 1

-- Takes the permits, unless this very call took them before: its answer got lost.
-- Of a job that waited it says how that was.
local function admit(r, from_us)
  local answer = take_all(meters, call('SET', admitted, number, 'PX', '10000', 'GET') == number)
  local n = #answer
  if r then answer[n + 1], answer[n + 2], answer[n + 3] = r.since_us, r.denials, from_us or 0 end
  return answer
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if not waited then
  if refusal then return refusal end
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

-- @include called

local r = waited and read_job(queue, id)
local ids, costs = {}, {}
for i = 1, meters and #meters or 0 do
  ids[i], costs[i] = meters[i].id, int(meters[i].cost)
end
local job = { queue = queue, lane = queue .. '\n' .. table.concat(ids, '\n'), costs = table.concat(costs, ','), ids = ids }
local same = meters and r and r.lane == job.lane and r.costs == job.costs

-- What is reserved for a called job is its own; all others leave it alone.
local called, late, from_us
if same then called, late, from_us = claim(queue, id, r) end
if called == RESERVED then
  local _, at = binding(meters)
  if at <= now_us then
    leave(name, id, r, called, late)
    return admit(r, from_us)
  end
end

-- @include waiting

if refusal then
  if r and refusal[1] ~= STALE then forget_job(queue, id, r) end
  return refusal
end
if not r and call('GET', admitted) == number then return take_all(meters, true) end

-- Where its rule changed while it waited, or somebody took it out of its lane,
-- a job begins anew; but it has waited since it was denied first.
job.name, job.id, job.meters, job.since_us, job.grant_us = name, id, meters, r and r.since_us or now_us, grant_us
job.head_start, job.max_wait_us, job.useful_us = head_start, max_wait_us, useful_us
job.waiting = hg('lane', job.lane)
local waited_as = r
if r and not called and not (same and call('ZSCORE', job.waiting, id)) then
  forget_job(queue, id, r)
  r = nil
end
if not r then
  job.before = call('ZCARD', job.waiting)
  job.mark = job.before == 0 and contended(job)
end

if called ~= RESERVED then load_reserved(meters) end
local bind, at = binding(meters)
if at <= now_us and may_take(job, r, called) then
  if r then leave(name, id, r, called, late) end
  return admit(waited_as, from_us)
end
return wait(job, r, called, late, bind)
