-- @include scope

-- Forgets all of a job but its place.
local function forget_record(job, patience)
  call('HDEL', hg('jobs'), job)
  if patience ~= '0' then call('ZREM', hg('patience'), job) end
end
