-- @include cached_replies
-- @include take

-- Takes a job's permits, and returns the reply. The permits exist from `at` on, or from now if `at`
-- is nil or past. If the first attempt of the call took the permits, a repeat takes none and
-- replies with the cached time. If the job did not wait, the other arguments are nil.
local function admit(job, since_us, denials, reserved_at_us, at)
  local ready_at_us = job.cached_at_us or math.max(at or 0, now_us)
  job.cache_line = ADMITTED .. int(ready_at_us)
  local result = take_all(job.meters, job.cached_at_us, ready_at_us > now_us and ready_at_us)
  result[READY_AT] = ready_at_us
  local n = #result
  if since_us then result[n + 1], result[n + 2], result[n + 3] = since_us, denials, math.min(reserved_at_us or 0, now_us) end
  return result
end
