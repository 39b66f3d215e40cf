-- @include scope

local MARKS_MS = 10000 -- how long marks outlive who gives turns

-- Marks a meter at which a lane waits, so that newcomers take nothing there. A
-- lane's number says which word of a new lane the mark is older than; without
-- one, a mark that is there stays as it is.
local function mark(id, number)
  if number then call('HSET', hg('contended'), id, number) else call('HSETNX', hg('contended'), id, '0') end
  call('PEXPIRE', hg('contended'), MARKS_MS)
end
