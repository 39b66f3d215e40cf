-- @include mark

-- Assigns a number to a lane, marks one of its meters as contended until the leader has read the
-- lane, and notifies the leader.
local function register_lane(lane, meter)
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, lane)
  mark_contended(meter, number)
  call('PUBLISH', hg('wake'), 'lane ' .. number)
end
