-- @include jobs
-- @include next_ticket

-- Returns the ticket of a job that waited in another lane, or that ran before. The ticket puts the
--   job among those of its lane by the start of its wait, and at the latest where a new job would
--   be. A job that ran goes before jobs whose wait began at the same time. A Low job goes last.
local function ticket_among(job)
  local last = next_ticket(job.lane) + job.head_start * STEP
  if job.head_start > 0 then return last end
  local function at(rank)
    local of = call('ZRANGE', job.waiting, rank, rank, 'WITHSCORES')
    local r = read_job(job.queue, of[1])
    return tonumber(of[2]), r and r.since_us or 0
  end
  local low, high = 0, job.before
  while low < high do
    local middle = floor((low + high) / 2)
    local _, since_us = at(middle)
    if since_us > job.since_us or since_us == job.since_us and job.queued_at_us > 0 then high = middle else low = middle + 1 end
  end
  if low == job.before then return last end
  local after, after_us = at(low)
  if low == 0 then return math.min(last, after - STEP) end
  local before, before_us = at(low - 1)
  return math.min(last, before + floor((after - before) * ((job.since_us - before_us) / (after_us - before_us))))
end
