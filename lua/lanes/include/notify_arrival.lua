-- @include empty
-- @include wake_leader

-- Notifies the leader that a granted job of a lane called acquire or was removed. The notification
-- is sent if the lane had its maximum of granted jobs, because it can have another one now. It is
-- also sent if the job is late, because the leader then knows that workers take jobs of the queue.
local function notify_arrival(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then wake_leader('arrived 0 ' .. lane) end
end
