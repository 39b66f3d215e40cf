-- @include scope

-- Removes a lane that has neither waiting nor granted jobs. When the last lane is removed, all
-- counters are deleted, in case a counter is wrong.
local function remove_if_empty(lane)
  if call('EXISTS', hg('lane', lane), hg('granted', lane)) > 0 then return end
  call('ZREM', hg('lanes'), lane)
  if call('EXISTS', hg('lanes')) == 1 then
    call('HDEL', hg('tickets'), lane, lane .. TURN_SUFFIX)
    call('SREM', hg('full'), lane)
  else
    call('DEL', hg('tickets'), hg('full'), hg('meters'), hg('demand'))
  end
end
