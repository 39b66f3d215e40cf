-- Takes the permits of jobs, or has each wait in its lane until it is called: one job
-- after the other, as if they had asked alone.
-- Safe to repeat: the same call again gets the same answers, and a job that waits
-- keeps its place. A newcomer takes nothing of a meter that is contended: such
-- meters give through the lanes' turns only.
-- Touches: admitted (rw), blocked (r), called (rw), changes (w),
--   contended (rw), deleted (r), demand (rw), full (w), jobs (rw), lane (rw),
--   lanes (rw), limit (r), m (rw), meters (rw), overrides (r), patience (rw),
--   seq (w), tickets (w), turns (r), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2] caller: a name of who makes one call at a time
-- ARGV[3] number of its call, which only repeats of this very call share. The n-th job's
--   leases are held by its queue, its ID and <caller>:<number>.<n>, a line each
-- ARGV[4] 1 the first time that this call is sent, more if it is a repeat
-- ARGV[5…] for each group of jobs that differ in nothing else: queue, where they come from
--   and are called back to; tickets of head start: 0 normal, negative earlier, positive
--   later; longest wait in microseconds, from the first denial, or -1 for any; how long
--   permits are reserved for one once it is called, in microseconds; how many needs, and
--   how many jobs there are; limit, key and cost of each need, sorted by limit and key;
--   and of each job its ID, and microseconds until it is of no use any more, or -1 for
--   never
-- Returns for each job {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us, known}, where time_us is the shortest lease or
--   0 if allowed, and if denied how long to put the job back for; known, if denied,
--   is 0 where nobody can tell when it will run. If allowed,
--   instead of that, whether the limiter is to hear how the call goes, two numbers
--   for each need by which its meter knows what it gave; and of a job that waited
--   since when, how often it was denied,
--   and since when its permits exist or 0. {6, names, now_us} where calendars must
--   be extended
-- @include group
-- @include needs
-- @include take
-- @include arrive
-- @include contended
-- @include waiting
-- @include called
-- @include repeated
local app, caller, number, again = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local groups, names = read_groups(5)

-- Takes the permits. Of a job that waited it says how that was.
local function admit(job, since_us, denials, from_us)
  job.remembered = ADMITTED
  local answer = take_all(job.meters, job.admitted)
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, from_us or 0 end
  return answer
end

-- A newcomer may take where nobody waits before it, in its lane or elsewhere. Of
-- one that has waited r is what was known of it.
local function come(job, r)
  job.before = call('ZCARD', job.waiting)
  load_reserved(job.meters)
  local first, bind, at = job.before == 0, nil, nil
  if first then
    job.mark = contended(job.ids)
    bind, at = binding(job.meters)
  end
  if first and not job.mark and at <= now_us then return admit(job, r and r.since_us, r and r.denials) end
  if r then
    -- @include among
    job.ticket = ticket_among(job)
  end
  return wait(job, nil, true, bind)
end

-- Whose time is up is forgotten from here on. So a repeat of this call would wait
-- anew: the caller's last word says what it was told.
local function too_late(job, r)
  forget_job(job.queue, job.id, r)
  load_reserved(job.meters)
  local answer, words = reply(TOO_LATE, (binding(job.meters)), now_us), {}
  for k = 1, #answer do words[k] = int(answer[k]) end
  job.remembered = table.concat(words, ' ')
  return answer
end

-- A job that waits or was called, and comes otherwise than in time. Where its rule
-- changed while it waited, or somebody took it out of its lane, it begins anew; but it
-- has waited since it was denied first, and stands by that.
local function come_again(job, r, same, until_us)
  if latest(r.since_us, job.max_wait_us, job.useful_us) <= now_us then return too_late(job, r) end
  job.since_us = r.since_us
  local was, late, from_us
  if until_us then was, late, from_us = claim(job.queue, job.id, r, until_us) end
  if not was and not (same and call('ZSCORE', job.waiting, job.id)) then
    forget_job(job.queue, job.id, r)
    return come(job, r)
  end
  return go_on(job, r, was, late) or admit(job, r.since_us, r.denials, from_us)
end

local quiet, loaded = call('EXISTS', hg('jobs')) == 0, {} -- quiet: nobody waits

local function acquire(job, record)
  local holder = job.name .. '\n' .. caller .. ':' .. number .. '.' .. job.place
  local meters, refusal = load_needs(job.needs, job.first - 1, app, holder, loaded)
  job.meters = meters
  if not record then
    if refusal then return refusal end
    if job.admitted then return admit(job) end
    if quiet then
      local _, at = binding(job.meters)
      if at <= now_us then return admit(job) end
      quiet = false
    end
    return come(job)
  end

  local ending = '\n' .. job.costs .. '\n' .. job.lane
  local same = string.sub(record, -#ending) == ending
  local called = same and hg('called', job.lane)
  local until_us = called and tonumber(call('ZSCORE', called, job.id) or nil)
  if not refusal and until_us and until_us > 0 then
    local since_us, denials, from_us = arrive(job, called, record, until_us)
    if since_us then return admit(job, since_us, denials, from_us) end
  end
  local r = parse_job(record)
  if not refusal then return r and come_again(job, r, same, until_us) or come(job) end
  if r and refusal[1] ~= STALE then forget_job(job.queue, job.id, r) end
  return refusal
end

local records = quiet and {} or call('HMGET', hg('jobs'), unpack(names))
local told = again ~= '1' and repeated(call('GET', hg('admitted', caller)), number) or {}
local answers, words, any, seen, n = {}, { number }, false, {}, 0
for g = 1, #groups do
  local job = groups[g]
  for k = job.first, job.last, 2 do
    n = n + 1
    next_job(job, ARGV[k], names[n], ARGV[k + 1], n)
    if seen[job.name] then records[n] = call('HGET', hg('jobs'), job.name) end
    seen[job.name], job.admitted = true, told[n] == ADMITTED
    answers[n] = type(told[n]) == 'table' and told[n] or acquire(job, records[n] or nil)
    words[n + 1], any = job.remembered or '', any or job.remembered
  end
end
store_taken(loaded)
if any then call('SET', hg('admitted', caller), table.concat(words, '\n'), 'PX', int(GRACE)) end
return answers
