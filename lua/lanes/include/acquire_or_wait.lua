-- @include admit
-- @include waiting
-- @include granted

-- Processes a job that is in no lane. `r` is the job's former record if this call has just removed
-- it, else nil. The job takes free permits only if its lane has no waiting job and none of its
-- meters is contended.
local function acquire_new(job, r)
  job.before = call('ZCARD', job.waiting)
  load_reserved(job.meters)
  local first, bottleneck, at = job.before == 0, nil, nil
  if first then
    job.mark = first_contended(job.ids)
    bottleneck, at = find_bottleneck(job.meters)
  end
  if first and not job.mark and at <= now_us then return admit(job, r and r.since_us, r and r.denials) end
  if r or job.queued_at_us > 0 then
    -- @include ticket_among
    job.ticket = ticket_among(job)
  end
  return wait_in_lane(job, nil, true, bottleneck)
end

-- Removes a job whose wait deadline has passed, and returns the reply. The reply is cached. Without
-- the cache, a repeat of this call would find no record and begin another wait.
local function expire(job, r)
  forget_job(job.queue, job.id, r)
  load_reserved(job.meters)
  local result = reply(EXPIRED, (find_bottleneck(job.meters)), now_us)
  job.cache_line = line_of_reply(result)
  return result
end

-- Processes a waiting job, or a granted job that cannot take its reserved permits at once. A job
-- leaves its old lane if its needs have changed or Redis has lost its entry there. It then counts
-- as new, but keeps the start of its wait.
local function acquire_waiting(job, r)
  if wait_deadline(r.since_us, job.max_wait_us, job.useful_us) <= now_us then return expire(job, r) end
  job.since_us = r.since_us
  local granted, late, reserved_at_us
  if job.reserved_until_us then granted, late, reserved_at_us = take_reservation(job, r, job.reserved_until_us) end
  if not granted and not (job.same_rule and call('ZSCORE', job.waiting, job.id)) then
    forget_job(job.queue, job.id, r)
    return acquire_new(job, r)
  end
  local at, result = take_or_wait(job, r, granted, late)
  return result or admit(job, r.since_us, r.denials, reserved_at_us, at)
end

-- Processes a job that try_at_once did not decide.
local function acquire_or_wait(job, record)
  local r = record and parse_job(record)
  if r and job.cached_wait then r.denials = r.denials - 1 end -- the first attempt has counted this denial
  if not job.refusal then return r and acquire_waiting(job, r) or acquire_new(job) end
  local may_ask_again = job.refusal[1] == STALE or job.refusal[1] == NO_LIMIT and job.waits > 0
  if r and not may_ask_again then
    forget_job(job.queue, job.id, r)
    job.cache_line = line_of_reply(job.refusal)
  end
  return job.refusal
end

-- Returns the denial of a job in a repeated call. The wait that the first attempt began is already
-- over, so the job does not wait again.
local function deny_without_wait(job, app)
  local meters, refusal = load_needs(job.first_need, job.first_job - 1, app, nil, nil, job.waits)
  if refusal then return refusal end
  load_reserved(meters)
  return denial_without_wait(meters)
end

-- Removes an earlier job of the same name. `record` is the earlier job's record.
local function forget_earlier(job, record)
  local r = parse_job(record)
  if r then forget_job(job.queue, job.id, r) else forget_record(job.name, HAS_DEADLINE) end
end
