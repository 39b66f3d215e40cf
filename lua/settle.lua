-- Writes how many lanes take turns at meters; and where none does any more,
-- newcomers may take there again, unless one has come to wait there meanwhile.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that gives turns
-- ARGV[2] number of the last lane that it knows
-- ARGV[3…] meter, lanes that wait at it
-- Returns 1, or 0 where another process gives turns
-- @include scope
local process, seen = ARGV[1], tonumber(ARGV[2])

if call('GET', hg('turns')) ~= process then return 0 end
for i = 3, #ARGV, 2 do
  local id, lanes = ARGV[i], tonumber(ARGV[i + 1])
  if lanes > 1 then call('HSET', hg('sharing'), id, lanes) else call('HDEL', hg('sharing'), id) end
  if lanes == 0 and tonumber(call('HGET', hg('contended'), id) or 0) <= seen then call('HDEL', hg('contended'), id) end
end
return 1
