-- @include admit
-- @include waiting
-- @include granted

-- Processes a job that is in no lane; r is its record if it was in a lane before. The job takes
-- permits only if no job waits ahead of it, in its lane or at its meters.
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

-- Removes a job whose wait deadline has passed. The reply is cached, because a repeat of this call
-- would find no record and start another wait.
local function expire(job, r)
  forget_job(job.queue, job.id, r)
  load_reserved(job.meters)
  local result = reply(EXPIRED, (find_bottleneck(job.meters)), now_us)
  job.cache_line = line_of_reply(result)
  return result
end

-- Processes a job that waits, or that is granted and is late. If its rule changed, or its lane has
-- lost it, the job joins a lane again, and keeps the start of its wait.
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
  if r and job.refusal[1] ~= STALE then
    forget_job(job.queue, job.id, r)
    job.cache_line = line_of_reply(job.refusal)
  end
  return job.refusal
end

-- Returns the denial of a job in a repeated call, if the wait that the call began is already over.
local function deny_without_wait(job, app)
  local meters, refusal = load_needs(job.first_need, job.first_job - 1, app)
  if refusal then return refusal end
  load_reserved(meters)
  return denial_without_wait(meters)
end

-- Removes an earlier job of the same name.
local function forget_earlier(job, record)
  local r = parse_job(record)
  if r then forget_job(job.queue, job.id, r) else forget_record(job.name, HAS_DEADLINE) end
end
