-- @include scope

-- When a job's time is up that waits since a moment. From then on it is neither
-- granted nor let by, but told that it is too late.
local function latest(since_us, max_wait_us, useful_us)
  local at = max_wait_us >= 0 and since_us + max_wait_us or math.huge
  return useful_us >= 0 and math.min(at, now_us + useful_us) or at
end

-- Whether a granted job may have its permits that exist from then on: now; or early, where
-- it begins when they do. So it may of one funnel or bucket, since those are gone for all
-- others from now on, who have theirs later than they might. A window would count them in
-- one that is over, and of several meters the others would give for nothing meanwhile. Whose
-- time is up by then has none.
local function may_have(job, at)
  if at <= now_us then return true end
  if at > now_us + job.ahead_us or job.meters[2] or not job.meters[1].early then return false end
  return latest(job.since_us, job.max_wait_us, job.useful_us) > at
end
