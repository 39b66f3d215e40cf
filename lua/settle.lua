-- Writes how many lanes take turns at meters; and where none does any more,
-- newcomers may take there again, unless one has come to wait there meanwhile.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that gives turns
-- ARGV[2] number of the last lane that it knows
-- ARGV[3…] meter, lanes that wait at it
-- Returns 1, or 0 where another process gives turns
-- @include scope
local process, seen = ARGV[1], tonumber(ARGV[2])

if call('GET', P .. 'turns') ~= process then return 0 end
for i = 3, #ARGV, 2 do
  local id, lanes = ARGV[i], tonumber(ARGV[i + 1])
  if lanes > 1 then call('HSET', P .. 'sharing', id, lanes) else call('HDEL', P .. 'sharing', id) end
  if lanes == 0 and tonumber(call('HGET', P .. 'contended', id) or 0) <= seen then call('HDEL', P .. 'contended', id) end
end
return 1
