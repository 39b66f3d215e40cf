-- @include repeated
-- @include take

-- Takes a job's permits, which exist from a time on, or now; or, if a repeat finds them, from when
-- they were taken. The reply to a job that waited says how long.
local function admit(job, since_us, denials, from_us, at)
  local exist_us = job.admitted or math.max(at or 0, now_us)
  job.remembered = ADMITTED .. int(exist_us)
  local answer = take_all(job.meters, job.admitted, exist_us > now_us and exist_us)
  answer[4] = exist_us
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, math.min(from_us or 0, now_us) end
  return answer
end
