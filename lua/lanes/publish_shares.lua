-- Writes the number of lanes that share each meter. A meter with lanes is contended: new jobs take
-- no permits of it. The mark of a meter without lanes is removed, unless the mark is from a lane
-- that the leader does not know yet.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] leader
-- ARGV[2] number of the last lane that it knows
-- ARGV[3…] meter, number of lanes that wait at it
-- Returns the meters that have become contended; what freed their permits earlier was not published
-- @include mark
local process, seen = ARGV[1], tonumber(ARGV[2])

local marked = {}
if call('GET', hg('leader')) ~= process then return marked end
for i = 3, #ARGV, 2 do
  local id, lanes = ARGV[i], tonumber(ARGV[i + 1])
  if lanes > 0 then call('HSET', hg('meters'), id .. LANES_SUFFIX, lanes) else call('HDEL', hg('meters'), id .. LANES_SUFFIX) end
  if lanes > 0 then
    if mark_contended(id) then marked[#marked + 1] = id end
  elseif (tonumber(call('HGET', hg('contended'), id) or nil) or 0) <= seen then
    call('HDEL', hg('contended'), id)
  end
end
return marked
