-- @include empty

-- Notifies the leader that a granted job has arrived, if its lane had as many granted jobs as
-- possible, or if the job was late: the leader then knows that workers take jobs of its queue.
local function notify_arrival(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'arrived 0 ' .. lane) end
end
