-- Takes the permits of jobs, or puts each job in its lane to wait for them. The result is the same
-- as that of one call for each job, in order.
-- A meter is contended if lanes wait at it. New jobs take no permits of a contended meter: the
-- waiting lanes get its permits in turns.
-- Safe to repeat: a repeat of the same call returns the same replies, and waiting jobs keep their
-- places. A sending that arrives after a later call of its caller changes nothing.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app: name of the calling program, for limits that only some apps may use
-- ARGV[2] caller: ID of a caller that makes one call at a time
-- ARGV[3] call_number: number of the call; a caller's numbers grow, and only repeats of the call have
--   the same number. The n-th job's leases belong to the holder
--   "<queue>\n<ID>\n<caller>:<call_number>.<n>"
-- ARGV[4…] groups of consecutive jobs that differ only in id and useful_us; for each group:
--   job_count         number of jobs in the group
--   queue             asynq queue of the jobs
--   head_start        places by which a job joins its lane earlier (negative) or later (positive)
--   max_wait_us       longest wait after the first denial, microseconds; -1 unlimited
--   grant_us          time for which permits are reserved for a granted job, microseconds
--   max_advance_us    a granted job may take permits that will exist within this time, microseconds
--   queued_at_us      time at which an earlier attempt of the job was queued, Unix microseconds;
--                     0 if there was no earlier attempt; -1 if the job is also new in asynq: then a
--                     record with its name belongs to an earlier job
--   waiting_since_us  for a job that was allowed but has not begun: time from which max_wait_us
--                     counts, Unix microseconds; for other jobs 0
--   waits             what happens to a job whose limit does not exist or is for other apps: 0 it is
--                     refused; 1 it waits, except that it is refused if Redis may have lost the
--                     limit; 2 it waits
--   fairness_line     line of the lane's name with the fairness key; '' without a fairness key
--   need_count        number of needs
--   limit, key, cost  of each need; the needs are sorted by limit and key
--   id, useful_us     of each job: its ID, and the microseconds until its deadline; -1 if the job
--                     has no deadline
-- Returns a reply for each job:
--   outcome         1 allowed, 2 denied, 3 impossible, 4 no limit, 5 too late (the job's wait
--                   deadline has passed), 6 a calendar must be extended
--   need_index      index of the deciding need, from 0. With outcome 6: names of the limits whose
--                   calendars must be extended; this reply ends after now_us
--   now_us          Redis's clock, Unix microseconds
--   ready_at_us     allowed: time from which the permits exist (in a repeat it may be in the past);
--                   denied: expected start. With outcome 4: 1 if Redis lost the limit, 2 if the
--                   limit is for other apps, else 0; this reply ends here
--   remaining       free permits of the deciding meter
--   full_at_us      time at which the deciding meter has all permits again, Unix microseconds
--   capacity        most permits that the deciding meter gives at once; denied: 0 if its limit does
--                   not exist, -1 if its limit is for other apps
--   time_us         microseconds. allowed: shortest of the job's leases, 0 if it has no lease;
--                   denied: time for which the caller should put the job back
--   flag            allowed: the sum of 1 if the limiter wants feedback about the call, and 2 if permits
--                   of a window were taken; denied: 1 if the start is known, else 0
--   mark, given     allowed only, for each need: see the argument of the same name of charge.lua
--   since_us        allowed only, of a job that waited: start of its wait, Unix microseconds
--   denials         number of the job's denials; present if since_us is
--   reserved_at_us  time from which the job's permits were reserved, Unix microseconds; 0 if they
--                   were not reserved; present if since_us is
-- @include scope
-- @inner
-- @include group
-- @include needs
-- @include admit
-- @include redeem
local app, caller, call_number = ARGV[1], ARGV[2], ARGV[3]
local groups, names = read_groups(4)
local no_waiting, loaded = call('EXISTS', hg('jobs')) == 0, {} -- loaded: meter ID -> meter
local records = no_waiting and {} or call('HMGET', hg('jobs'), unpack(names))
local cache = call('GET', hg('admitted', caller))
if is_overtaken(cache, call_number) then return redis.error_reply(OVERTAKEN) end
local cached, cached_lines = cached_replies(cache, call_number)
local replies, seen = {}, {} -- seen: names of the jobs that have a reply
local cache_lines = { call_number }
local read_singly = false -- true after a job needed its lane: grants are then read job by job

-- Reports whether a job's record belongs to another wait than that of this call. In a repeat, the
-- cache names the wait that the first attempt began. If the job is new in asynq, its record belongs
-- to an earlier job of the same name, which was deleted while it waited.
local function is_other_wait(job, record)
  if job.cached_wait then return not is_same_wait(record, job.cached_wait) end
  return record and job.queued_at_us < 0
end

-- Returns the reply to a job that needs no lane, and nil for other jobs. A job needs no lane if it
-- can take its reserved permits, if its permits are free and no job of the scope waits, or if its
-- limits refuse it. The cached reply of a first attempt that took permits is returned, too.
local function try_at_once(job, record)
  if is_other_wait(job, record) then return nil end
  local holder = job.name .. '\n' .. caller .. ':' .. call_number .. '.' .. job.number
  job.meters, job.refusal = load_needs(job.first_need, job.first_job - 1, app, holder, loaded, job.waits)
  if job.cached_at_us then return job.refusal or admit(job) end
  if not record then
    if job.refusal then return job.refusal end
    if not no_waiting then return nil end
    local _, at = find_bottleneck(job.meters)
    return at <= now_us and admit(job) or nil
  end
  local ending = '\n' .. job.costs .. '\n' .. job.lane
  job.same_rule = string.sub(record, -#ending) == ending
  job.reserved_until_us = job.same_rule and reserved_until(job, read_singly)
  if job.refusal or not job.reserved_until_us or job.reserved_until_us <= 0 then return nil end
  local since_us, denials, reserved_at_us, at = redeem(job, record)
  return since_us and admit(job, since_us, denials, reserved_at_us, at) or nil
end

-- Calls decide(job, record) for each job without a reply, in order, and stores the reply that
-- decide returns. Stops when decide returns nil. Reports whether all jobs have a reply.
local function process_jobs(decide)
  local number = 0
  for g = 1, #groups do
    local job = groups[g]
    for arg = job.first_job, job.last_job, 2 do
      number = number + 1
      if not replies[number] then
        next_job(job, arg, names[number], number)
        if seen[job.name] then
          write_redeemed()
          records[number] = call('HGET', hg('jobs'), job.name)
        end
        if job.queued_at_us > 0 then restore_wait(job, records[number]) end
        local earlier = cached[number]
        job.cached_at_us = type(earlier) == 'number' and earlier
        job.cached_wait = type(earlier) == 'string' and earlier
        replies[number] = type(earlier) == 'table' and earlier or decide(job, records[number] or nil)
        if not replies[number] then return false end
        seen[job.name] = true
        cache_lines[number + 1] = job.cache_line or replies[number].wait or cached_lines[number] or ''
      end
    end
  end
  return true
end

local function finish()
  write_redeemed()
  store_taken(loaded)
  cache_replies(caller, cache_lines)
  return replies
end

-- Most calls end here, and do not create the functions below.
if process_jobs(try_at_once) then return finish() end

write_redeemed()
-- @inner
-- @include acquire_or_wait
-- @include join_all

-- Adds the jobs that follow a denied job in its group to the same lane, up to the first job that
-- has a record, a cached reply, an earlier job of the same name in this call, or a deadline.
local function join_followers(job)
  local ids = {}
  seen[job.name] = true
  local alike = job.head_start == 0 and job.queued_at_us <= 0 and job.useful_us < 0
  for arg = job.arg + 2, alike and job.last_job or 0, 2 do
    local number = job.number + #ids + 1
    if records[number] or cached[number] or seen[names[number]] or ARGV[arg + 1] ~= '-1' then break end
    ids[#ids + 1], seen[names[number]] = ARGV[arg], true
  end
  local joined = #ids > 0 and join_all(job, ids) or ids
  for i = 1, #ids do replies[job.number + i], cache_lines[job.number + i + 1] = joined[i], joined[i].wait end
end

process_jobs(function(job, record)
  if is_other_wait(job, record) then
    if job.cached_wait then return deny_without_wait(job, app) end
    forget_earlier(job, record)
    record = nil
  end
  local result = try_at_once(job, record)
  write_redeemed()
  if result then return result end
  no_waiting, read_singly = false, true
  result = acquire_or_wait(job, record)
  if result[1] == DENIED and not record then join_followers(job) end
  return result
end)
return finish()
