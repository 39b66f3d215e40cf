-- @include scope

-- Returns the wait deadline of a job. From then on it is neither granted nor admitted, but told
--   that it is too late.
local function latest(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end

-- Reports whether a granted job may take its permits, which exist from a time on: now, or early if
-- it begins when they do. Early permits must be of one funnel or bucket: they are gone for all
-- others from now on. A window would count them in one that is over, and several meters would have
-- to be reserved meanwhile. A job whose deadline is over by then takes none.
local function may_have(job, at)
  if at <= now_us then return true end
  if at > now_us + job.ahead_us or job.meters[2] or not job.meters[1].early then return false end
  return latest(job.since_us, job.max_wait_us, job.useful_us) > at
end
