-- Presumes called jobs dead that a worker took long ago and that have not asked. They
-- count no more against how many of their lane may be called, so that the lane goes on.
-- Touches: called (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lane, ID of each job
-- Returns how many of them are presumed dead now
-- @include scope

local presumed = 0
for i = 1, #ARGV, 2 do
  local called, id = hg('called', ARGV[i]), ARGV[i + 1]
  if call('ZSCORE', called, id) == '0' then
    call('ZADD', called, '-1', id)
    presumed = presumed + 1
  end
end
return presumed
