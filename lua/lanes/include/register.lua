-- @include mark
-- @include wake_leader

-- Assigns a number to a lane, marks the given meter of the lane as contended, and notifies the
-- leader. The leader marks the lane's other meters when it has read the lane.
local function register_lane(lane, meter)
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, lane)
  mark_contended(meter, number)
  wake_leader('lane ' .. number)
end
