-- @include mark

-- Gives a lane with waiting jobs its number, marks one of its meters as contended, so that no
-- newcomer takes permits there before the lane had its turn, and publishes that.
local function register_lane(lane, meter)
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, lane)
  mark_contended(meter, number)
  call('PUBLISH', hg('wake'), 'lane ' .. number)
end
