-- @include scope

-- Returns a waiting job's wait deadline, Unix microseconds; math.huge if the job has none. A
-- negative max_wait_us or useful_us means no bound.
local function wait_deadline(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end

-- Reports whether a granted job is allowed to take permits that exist from `at` on. Permits that
-- exist now are always allowed. Permits of the next max_advance_us are allowed if the job has one
-- meter that allows an advance (funnel or token bucket), and its wait deadline is after `at`. A
-- window would count future permits too early. With several meters, the permits of one meter would
-- be taken earlier than needed.
local function may_take_at(job, at)
  if at <= now_us then return true end
  if at > now_us + job.max_advance_us or job.meters[2] or not job.meters[1].allows_advance then return false end
  return wait_deadline(job.since_us, job.max_wait_us, job.useful_us) > at
end
