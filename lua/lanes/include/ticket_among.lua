-- @include jobs
-- @include next_ticket

-- Returns the ticket of a job that waited in another lane, or that had an earlier attempt. The
-- ticket places the job by the start of its wait, but never behind the place of a new job. If
-- another job has the same start, a job with an earlier attempt goes ahead of it. A job with a
-- positive head_start always gets the place of a new job.
local function ticket_among(job)
  local last = next_ticket(job.lane) + job.head_start * STEP
  if job.head_start > 0 then return last end
  local function entry_at(rank)
    local entry = call('ZRANGE', job.waiting, rank, rank, 'WITHSCORES')
    local r = read_job(job.queue, entry[1])
    return tonumber(entry[2]), r and r.since_us or 0
  end
  local low, high = 0, job.before
  while low < high do
    local middle = floor((low + high) / 2)
    local _, since_us = entry_at(middle)
    if since_us > job.since_us or since_us == job.since_us and job.queued_at_us > 0 then high = middle else low = middle + 1 end
  end
  if low == job.before then return last end
  local following, following_us = entry_at(low)
  if low == 0 then return math.min(last, following - STEP) end
  local previous, previous_us = entry_at(low - 1)
  return math.min(last, previous + floor((following - previous) * ((job.since_us - previous_us) / (following_us - previous_us))))
end
