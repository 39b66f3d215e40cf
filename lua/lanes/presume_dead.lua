-- Presumes called jobs dead that a worker took long ago and that have not asked. They
-- count no more against how many of their lane may be called, so that the lane goes on.
-- Touches: called (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lane, ID of each job
-- Returns how many of them are presumed dead now
-- @include scope

local function presume_dead(lane, id)
  local called = hg('called', lane)
  if call('ZSCORE', called, id) ~= '0' then return 0 end
  call('ZADD', called, '-1', id)
  return 1
end

local presumed = 0
for i = 1, #ARGV, 2 do presumed = presumed + presume_dead(ARGV[i], ARGV[i + 1]) end
return presumed
