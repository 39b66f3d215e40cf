-- @include admit
-- @include waiting
-- @include granted

-- Processes a job that is not in a lane; r is its record if it has left one. The job takes permits
-- only if no job waits before it, in its lane or in other lanes.
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
  return wait(job, nil, true, bottleneck)
end

-- Forgets a job whose wait deadline is over. The reply is cached, because a repeat of this call
-- would start another wait.
local function expire(job, r)
  forget_job(job.queue, job.id, r)
  load_reserved(job.meters)
  local result = reply(EXPIRED, (find_bottleneck(job.meters)), now_us)
  job.cache_line = line_of_reply(result)
  return result
end

-- Processes a job that waits, or that was granted and is late. A job whose rule changed, or that
-- was removed from its lane by hand, joins a lane again. It keeps the start of its wait.
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

-- Processes a job that has no reply yet: it takes its permits, or waits, or can never be allowed.
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

-- Returns the denial of a job whose wait, which the first attempt of this call began, is over.
local function deny_without_wait(job, app)
  local meters, refusal = load_needs(job.first_need, job.first_job - 1, app)
  if refusal then return refusal end
  load_reserved(meters)
  return denial_without_wait(meters)
end

-- Forgets an earlier job of the same name.
local function forget_earlier(job, record)
  local r = parse_job(record)
  if r then forget_job(job.queue, job.id, r) else forget_record(job.name, HAS_DEADLINE) end
end
