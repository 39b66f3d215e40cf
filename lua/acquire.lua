-- Takes a job's permits, or has it wait in its lane until it is called.
-- Safe to repeat: the same call again gets the same answer, and a job that waits
-- keeps its place. A newcomer takes nothing of a meter that is contended: such
-- meters give through the lanes' turns only.
-- Touches: admitted (rw), blocked (r), called (rw), changes (w),
--   contended (rw), deleted (r), demand (rw), full (w), jobs (rw), lane (rw),
--   lanes (rw), limit (r), m (rw), meters (rw), overrides (r), patience (rw),
--   seq (w), tickets (w), turns (r), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue it comes from and is called back to
-- ARGV[2] ID of the job
-- ARGV[3] app that asks
-- ARGV[4] caller: a name of who makes one call at a time
-- ARGV[5] number of its call, which only repeats of this very call share
-- ARGV[6] 1 the first time that this call is sent, more if it is a repeat
-- ARGV[7] tickets of head start: 0 normal, negative earlier, positive later
-- ARGV[8] longest wait in microseconds, from its first denial, or -1 for any
-- ARGV[9] microseconds until it is of no use any more, or -1 for never
-- ARGV[10] how long permits are reserved for it once it is called, in microseconds
-- ARGV[11…] limit, key, cost for each need, sorted by limit and key
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us, known}, where time_us is the shortest lease or
--   0 if allowed, and if denied how long to put the job back for; known, if denied,
--   is 0 where nobody can tell when it will run. If allowed,
--   instead of that, whether the limiter is to hear how the call goes, two numbers
--   for each need by which its meter knows what it gave; and of a job that waited
--   since when, how often it was denied,
--   and since when its permits exist or 0. {6, names, now_us} where calendars must
--   be extended
-- @include needs
local queue, id, app, caller, number, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local head_start, max_wait_us, useful_us, grant_us = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local name = queue .. '\n' .. id
local admitted = hg('admitted', caller)

local meters, refusal = load_needs(11, app, name .. '\n' .. caller .. ':' .. number)
local jobs = hg('jobs')
local record = call('HGET', jobs, name)
if refusal and not record then return refusal end

local ids, costs = {}, {}
for i = 1, meters and #meters or 0 do
  ids[i], costs[i] = meters[i].id, ARGV[10 + 3 * i]
end
local lane, costs = queue .. '\n' .. table.concat(ids, '\n'), table.concat(costs, ',')

-- Takes the permits, unless this very call took them before: its answer got lost.
-- Of a job that waited it says how that was.
local function admit(since_us, denials, from_us)
  -- @include take
  local answer = take_all(meters, call('SET', admitted, number, 'PX', int(GRACE), 'GET') == number)
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, from_us or 0 end
  return answer
end

if again ~= '1' and not record then
  -- @include repeated
  local answer = repeated(number, call('GET', admitted))
  if answer then return answer == number and admit() or answer end
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then; nor is more than each case needs.
local before = not record and call('ZCARD', hg('lane', lane))
if before == 0 and call('EXISTS', jobs) == 0 then
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

local ending = '\n' .. costs .. '\n' .. lane
local same = meters and record and string.sub(record, -#ending) == ending

local called = same and hg('called', lane)
local until_us = called and tonumber(call('ZSCORE', called, id) or nil)
if until_us and until_us > 0 then
  -- @include arrive
  local since_us, denials, from_us = arrive(name, id, lane, called, record, meters, until_us, max_wait_us, useful_us)
  if since_us then return admit(since_us, denials, from_us) end
end

-- @include waiting

local job = {
  name = name, queue = queue, id = id, lane = lane, waiting = hg('lane', lane), ids = ids, costs = costs, meters = meters,
  since_us = now_us, head_start = tonumber(head_start), max_wait_us = max_wait_us, useful_us = useful_us,
  grant = grant_us, ticket = nil, before = false, mark = false,
}

-- A newcomer may take where nobody waits before it, in its lane or elsewhere. Of
-- one that has waited r is what was known of it.
local function come(r)
  job.before = before or call('ZCARD', job.waiting)
  load_reserved(meters)
  local first, bind, at = job.before == 0, nil, nil
  if first then
    -- @include contended
    job.mark = contended(ids)
    bind, at = binding(meters)
  end
  if first and not job.mark and at <= now_us then return admit(r and r.since_us, r and r.denials) end
  if r then
    -- @include among
    job.ticket = ticket_among(job)
  end
  return wait(job, nil, true, bind)
end

local r
if record then
  -- @include jobs
  r = parse_job(record)
end
if not r then return refusal or come() end

-- @include called

if refusal then
  if refusal[1] ~= STALE then forget_job(queue, id, r) end
  return refusal
end

-- Whose time is up is forgotten from here on. So a repeat of this call would wait
-- anew: the caller's last word says what it was told.
if latest(r.since_us, max_wait_us, useful_us) <= now_us then
  forget_job(queue, id, r)
  load_reserved(meters)
  local answer, words = reply(TOO_LATE, (binding(meters)), now_us), {}
  for i = 1, #answer do words[i] = int(answer[i]) end
  call('SET', admitted, number .. '\n' .. table.concat(words, ' '), 'PX', int(GRACE))
  return answer
end
local was, late, from_us
if until_us then was, late, from_us = claim(queue, id, r, until_us) end

-- Where its rule changed while it waited, or somebody took it out of its lane,
-- a job begins anew; but it has waited since it was denied first, and stands by that.
job.since_us = r.since_us
if not was and not (same and call('ZSCORE', job.waiting, id)) then
  forget_job(queue, id, r)
  return come(r)
end
return go_on(job, r, was, late) or admit(r.since_us, r.denials, from_us)
