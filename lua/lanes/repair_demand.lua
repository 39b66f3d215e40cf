-- Corrects how many permits are wanted of meters, unless that has changed meanwhile.
-- Touches: demand (rw), leader (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] leader
-- ARGV[2…] meter, what was read, and how many permits the waiting jobs want, for each
-- Returns of how many it has corrected that
-- @include scope
local process, corrected = ARGV[1], 0

if call('GET', hg('leader')) ~= process then return 0 end
for i = 2, #ARGV, 3 do
  local id, read, permits = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if (call('HGET', hg('demand'), id) or '0') == read then
    if permits == '0' then call('HDEL', hg('demand'), id) else call('HSET', hg('demand'), id, permits) end
    corrected = corrected + 1
  end
end
return corrected
