-- @include scope

local MARKS_MS = 10000 -- how long marks outlive the leader

-- Marks a meter as contended, so that newcomers take nothing there. The mark has the number of the
-- lane that waits there; without a number, a mark that exists stays as it is. Reports whether there
-- was none.
local function mark_contended(id, number)
  local new = call(number and 'HSET' or 'HSETNX', hg('contended'), id, number or '0') == 1
  call('PEXPIRE', hg('contended'), MARKS_MS)
  return new
end
