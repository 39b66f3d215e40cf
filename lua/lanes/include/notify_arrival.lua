-- @include empty
-- @include wake_leader

-- Notifies the leader that a granted job of a lane called acquire or was removed. The notification
-- is sent if the lane had its maximum of granted jobs, because it can have another one now. It is
-- also sent if the job is late, because the leader then knows that workers take jobs of the queue, but
-- that they may be busy. The number in the notification is 1 if the job is late, else 0.
local function notify_arrival(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then wake_leader('arrived ' .. (late and 1 or 0) .. ' ' .. lane) end
end
