-- @include admit
-- @include waiting
-- @include granted

-- A newcomer may take permits if no job waits before it, in its lane or elsewhere. r is the record
-- of a job that has waited.
local function come(job, r)
  job.before = call('ZCARD', job.waiting)
  load_reserved(job.meters)
  local first, bind, at = job.before == 0, nil, nil
  if first then
    job.mark = contended(job.ids)
    bind, at = binding(job.meters)
  end
  if first and not job.mark and at <= now_us then return admit(job, r and r.since_us, r and r.denials) end
  if r or job.stood_us > 0 then
    -- @include among
    job.ticket = ticket_among(job)
  end
  return wait(job, nil, true, bind)
end

-- Forgets a job whose wait deadline is over. A repeat of this call would wait anew, so the reply is
-- kept.
local function too_late(job, r)
  forget_job(job.queue, job.id, r)
  load_reserved(job.meters)
  local answer = reply(EXPIRED, (binding(job.meters)), now_us)
  job.remembered = line_of_reply(answer)
  return answer
end

-- Processes a job that waits, or was granted and comes late. If its rule changed while it waited,
-- or it was taken out of its lane by hand, it begins anew; but it has waited since its first
-- denial, and stands by that.
local function come_again(job, r)
  if latest(r.since_us, job.max_wait_us, job.useful_us) <= now_us then return too_late(job, r) end
  job.since_us = r.since_us
  local was, late, from_us
  if job.until_us then was, late, from_us = claim(job, r, job.until_us) end
  if not was and not (job.same and call('ZSCORE', job.waiting, job.id)) then
    forget_job(job.queue, job.id, r)
    return come(job, r)
  end
  local at, answer = go_on(job, r, was, late)
  return answer or admit(job, r.since_us, r.denials, from_us, at)
end

-- Processes a job that does not come in time for its permits.
local function come_or_wait(job, record)
  local r = record and parse_job(record)
  if r and job.wait then r.denials = r.denials - 1 end -- this call has counted it
  if not job.refusal then return r and come_again(job, r) or come(job) end
  if r and job.refusal[1] ~= STALE then
    forget_job(job.queue, job.id, r)
    job.remembered = line_of_reply(job.refusal)
  end
  return job.refusal
end

-- Replies to a job that has waited by this call, and does so no more.
local function pass_over(job, app)
  local meters, refusal = load_needs(job.needs, job.first - 1, app)
  if refusal then return refusal end
  load_reserved(meters)
  return passed_over(meters)
end

-- Forgets an earlier job of the same name.
local function forget_earlier(job, record)
  local r = parse_job(record)
  if r then forget_job(job.queue, job.id, r) else forget_record(job.name, '1') end
end
