-- @include repeated
-- @include take

-- Takes the permits, which exist from that time on, or now; or from when they were taken on,
-- if a repeat finds them. Of a job that waited it says how that was.
local function admit(job, since_us, denials, from_us, at)
  local exist_us = job.admitted or math.max(at or 0, now_us)
  job.remembered = ADMITTED .. int(exist_us)
  local answer = take_all(job.meters, job.admitted, exist_us > now_us and exist_us)
  answer[4] = exist_us
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, math.min(from_us or 0, now_us) end
  return answer
end
