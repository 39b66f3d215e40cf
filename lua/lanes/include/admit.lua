-- @include take

-- How a caller's last word says that a job was allowed; then since when its permits
-- exist, where they did not yet.
local ADMITTED = '+'

-- What the jobs of this very call were told before, if a caller's last word says so:
-- its number, and a line for each job: of one that was allowed a time, the reply of one that was told that
-- it is too late, or nothing.
local function repeated(last, number)
  local told = {}
  if not last or string.match(last, '^%d+') ~= number then return told end
  for line in string.gmatch(last, '\n([^\n]*)') do
    local answer = line
    if string.sub(line, 1, 1) == ADMITTED then
      answer = tonumber(string.sub(line, 2)) or 0
    elseif line ~= '' then
      answer = {}
      for word in string.gmatch(line, '%S+') do answer[#answer + 1] = tonumber(word) end
    end
    told[#told + 1] = answer
  end
  return told
end

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
