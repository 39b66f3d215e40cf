-- @include scope

-- Returns the wait deadline of a job, math.huge if it has none. From then on the job is expired.
local function wait_deadline(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end

-- Reports whether a granted job may take permits that exist from a time on. A job may take them
-- early if it then begins at that time, and if its only meter is a funnel or a token bucket. A
-- window would count early permits in the window before, and several meters would have to be
-- reserved meanwhile. A job whose deadline is over by that time may not.
local function may_take_at(job, at)
  if at <= now_us then return true end
  if at > now_us + job.max_advance_us or job.meters[2] or not job.meters[1].early then return false end
  return wait_deadline(job.since_us, job.max_wait_us, job.useful_us) > at
end
