-- @include scope

-- Forgets a lane without waiting or granted jobs, and with the last lane all that a lost record, or
-- a process that died, may have left behind.
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
