-- @include empty

-- Notifies the leader that a granted job has arrived, if the lane was full of granted jobs, or if
-- the job was late: its queue takes jobs after all.
local function notify_arrival(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
end
