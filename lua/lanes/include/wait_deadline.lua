-- @include scope

-- Returns the time from which a waiting job has expired; math.huge if there is none.
local function wait_deadline(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end

-- Reports whether a granted job may take permits that exist from `at` on. It may take permits of
-- the next max_advance_us if its only meter is a funnel or a token bucket, and if its wait deadline
-- is after `at`. A window would count future permits too early, and of several meters one would be
-- reserved longer than needed.
local function may_take_at(job, at)
  if at <= now_us then return true end
  if at > now_us + job.max_advance_us or job.meters[2] or not job.meters[1].allows_advance then return false end
  return wait_deadline(job.since_us, job.max_wait_us, job.useful_us) > at
end
