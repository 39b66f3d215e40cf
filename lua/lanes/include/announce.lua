-- @include mark

-- Gives a lane of which something waits its number, and one of its meters the mark, so
-- that nobody takes there before the lane had its turn; and says so.
local function announce(lane, meter)
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, lane)
  mark(meter, number)
  call('PUBLISH', hg('wake'), 'lane ' .. number)
end
