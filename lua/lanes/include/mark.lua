-- @include scope

local MARKS_MS = 10000 -- all marks expire this long after a lane or the leader last set or renewed one

-- Marks a meter as contended, so that new jobs take no permits of it. The value of the mark is the
-- number of the lane that waits there. If `number` is nil, an existing mark is kept, and a new mark
-- has the value 0. Reports whether the meter had no mark before.
local function mark_contended(id, number)
  local new = call(number and 'HSET' or 'HSETNX', hg('contended'), id, number or '0') == 1
  call('PEXPIRE', hg('contended'), MARKS_MS)
  return new
end
