-- @include scope

-- Sums up the parts of a sliding window that still count, of a text "part count part
-- count …", oldest first. After a change of the width a part goes where its last
-- microsecond lies. Returns the sum, the newest part, its count, and the older ones as such
-- a text.
local function sum_up(m, text, was_width, now_us)
  local width = ceil(m.period_us / 60)
  local sum, newest, count, older = 0, nil, 0, ''
  for part, taken in string.gmatch(text, '(%d+) (%d+)') do
    local b = tonumber(part)
    if was_width ~= width then b = floor(((b + 1) * was_width - 1) / width) end
    if (b + 1) * width - 1 + m.period_us > now_us then
      if newest and newest ~= b then
        older = older .. int(newest) .. ' ' .. int(count) .. ' '
        count = 0
      end
      newest, count, sum = b, count + taken, sum + taken
    end
  end
  return sum, newest, count, older
end

-- What sum_up has found, as the meter's state.
local function parts_text(width, sum, newest, count, older)
  return int(width) .. ' ' .. int(sum) .. ' ' .. int(newest) .. ' ' .. int(count) .. ';' .. older
end
