-- @include repeated
-- @include take

-- Takes the permits. Of a job that waited it says how that was.
local function admit(job, since_us, denials, from_us)
  job.remembered = ADMITTED
  local answer = take_all(job.meters, job.admitted)
  local n = #answer
  if since_us then answer[n + 1], answer[n + 2], answer[n + 3] = since_us, denials, from_us or 0 end
  return answer
end
