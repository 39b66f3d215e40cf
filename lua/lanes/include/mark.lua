-- @include scope

local MARKS_MS = 10000 -- how long marks outlive the leader

-- Marks a meter at which a lane waits, so that newcomers take nothing there. A
-- lane's number says which word of a new lane the mark is older than; without
-- one, a mark that is there stays as it is. Reports whether there was none.
local function mark(id, number)
  local new = call(number and 'HSET' or 'HSETNX', hg('contended'), id, number or '0') == 1
  call('PEXPIRE', hg('contended'), MARKS_MS)
  return new
end
