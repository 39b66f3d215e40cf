-- Ends the grants of jobs that a worker took from asynq long ago without acquiring permits: the
-- worker may have died. A job whose grant has ended no longer counts against the maximum number of
-- granted jobs of its lane. A grant with reserved permits is not ended.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lane and ID of each job
-- Returns the number of grants that this call has ended
-- @include scope

local given_up = 0
for i = 1, #ARGV, 2 do
  local granted, id = hg('granted', ARGV[i]), ARGV[i + 1]
  if call('ZSCORE', granted, id) == '0' then -- its reservation has expired
    call('ZADD', granted, '-1', id)
    given_up = given_up + 1
  end
end
return given_up
