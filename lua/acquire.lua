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
--   where nobody can tell when it will run; {6, names, now_us} where calendars
--   must be extended
-- @include needs
local queue, id, app, caller, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local head_start, max_wait_us, useful_us, grant_us = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local name = queue .. '\n' .. id
local admitted = hg('admitted', caller)

local meters, refusal = load_needs(10, app, name .. '\n' .. caller .. ':' .. number)

local waited = call('EXISTS', hg('jobs')) == 1

-- Takes the permits, unless this very call took them before: its answer got lost.
local function admit()
  return take_all(meters, call('SET', admitted, number, 'PX', '10000', 'GET') == number)
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if not waited then
  if refusal then return refusal end
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

-- @include waiting

local r = waited and read_job(queue, id)
if refusal then
  if r and refusal[1] ~= STALE then forget_job(queue, id, r) end
  return refusal
end
if not r and call('GET', admitted) == number then return take_all(meters, true) end

local job = {
  name = name, queue = queue, id = id, since_us = r and r.since_us or now_us, head_start = head_start,
  max_wait_us = max_wait_us, useful_us = useful_us, grant_us = grant_us, meters = meters, ids = {}, cost = {},
}
local costs = {}
for i = 1, #meters do
  job.ids[i], job.cost[i], costs[i] = meters[i].id, meters[i].cost, int(meters[i].cost)
end
job.lane = queue .. '\n' .. table.concat(job.ids, '\n')
job.costs = table.concat(costs, ',')
job.waiting = hg('lane', job.lane)

-- Where its rule changed while it waited, or somebody took it out of its lane,
-- a job begins anew; but it has waited since it was denied first.
local called, late
if r then
  local same = r.lane == job.lane and r.costs == job.costs
  if same then called, late = claim(job, r) end
  if not called and not (same and call('ZSCORE', job.waiting, id)) then
    forget_job(queue, id, r)
    r = nil
  end
end
if not r then job.mark, job.before = contended(job), call('ZCARD', job.waiting) end

-- What is reserved for a called job is its own; all others leave it alone.
if called ~= RESERVED then load_reserved(meters) end
local bind, at = binding(meters)
if at <= now_us and may_take(job, r, called) then
  if r then leave(job, r, called, late) end
  return admit()
end
return wait(job, r, called, late, bind)
