-- @include scope

-- Whether a called job may have its permits that exist from then on: now; or early, where
-- it begins when they do. So it may of one funnel or bucket, since those are gone for all
-- others from now on, who have theirs later than they might. A window would count them in
-- one that is over, and of several meters the others would give for nothing meanwhile.
local function may_have(job, at)
  return at <= now_us or at <= now_us + job.ahead_us and not job.meters[2] and job.meters[1].early
end
