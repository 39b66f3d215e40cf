-- @include scope

-- What this very call was told before, if a caller's last word says so: its number
-- where it was allowed, or the reply where it was told that it is too late.
local function repeated(number, last)
  if last == number then return number end
  local verdict = last and string.match(last, '^' .. number .. '\n(.*)$')
  if not verdict then return nil end
  local answer = {}
  for word in string.gmatch(verdict, '%S+') do answer[#answer + 1] = tonumber(word) end
  return answer
end
