-- @include take

-- How a caller's last word says that a job was allowed; then from when on its permits exist.
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
