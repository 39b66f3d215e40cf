-- @include scope

-- How a caller's last word says that a job was allowed.
local ADMITTED = '+'

-- What the jobs of this very call were told before, if a caller's last word says so:
-- its number, and a line for each job: ADMITTED, or the reply of one that was told that
-- it is too late, or nothing.
local function repeated(last, number)
  local told = {}
  if not last or string.match(last, '^%d+') ~= number then return told end
  for line in string.gmatch(last, '\n([^\n]*)') do
    local answer = line
    if line ~= '' and line ~= ADMITTED then
      answer = {}
      for word in string.gmatch(line, '%S+') do answer[#answer + 1] = tonumber(word) end
    end
    told[#told + 1] = answer
  end
  return told
end
