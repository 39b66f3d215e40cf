-- Writes for each given meter the number of lanes that share it. A meter with lanes is marked as
-- contended: new jobs take no permits of a marked meter. The mark of a meter without lanes is
-- removed if the leader knows the lane that set it. Only the leader changes anything.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that calls as the leader
-- ARGV[2] number of the last lane that the process knows
-- ARGV[3…] each meter, and the number of lanes that share it
-- Returns the meters that this call has marked. The caller must look at these meters, because
--   permits that became free before the mark may not have been published
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
