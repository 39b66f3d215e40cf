-- @include scope

local MARKS_MS = 10000 -- marks expire this long after the last renewal by a leader

-- Marks a meter as contended, so that new jobs take no permits of it. The mark is the number of the
-- lane that waits there. Without a number, an existing mark is kept. Reports whether the
-- meter had no mark.
local function mark_contended(id, number)
  local new = call(number and 'HSET' or 'HSETNX', hg('contended'), id, number or '0') == 1
  call('PEXPIRE', hg('contended'), MARKS_MS)
  return new
end
