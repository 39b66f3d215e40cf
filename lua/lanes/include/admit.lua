-- @include repeated
-- @include take

-- Takes the permits, which exist from that time on, or now. Of a job that waited it says
-- how that was.
local function admit(job, since_us, denials, from_us, at)
  at = job.admitted or at or 0
  job.remembered = at > now_us and ADMITTED .. int(at) or ADMITTED
  local answer = take_all(job.meters, job.admitted, at > now_us and at)
  if at > now_us then answer[4] = at end
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, math.min(from_us or 0, now_us) end
  return answer
end
