-- Gives up granted jobs that a worker took long ago and that have not asked: it may have died. They
-- do not count against how many of their lane may be granted, so that the lane goes on.
-- Touches: granted (rw).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lane, ID of each job
-- Returns how many of them are given up now
-- @include scope

local given_up = 0
for i = 1, #ARGV, 2 do
  local granted, id = hg('granted', ARGV[i]), ARGV[i + 1]
  if call('ZSCORE', granted, id) == '0' then
    call('ZADD', granted, '-1', id)
    given_up = given_up + 1
  end
end
return given_up
