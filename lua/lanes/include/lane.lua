-- @include scope

-- Returns the queue and the meter IDs of a lane's name, without the fairness key.
local function parse_lane(lane)
  local queue, rest = string.match(lane, '^([^\n]*)\n(.*)$')
  local ids = {}
  for id in string.gmatch(rest or '', '[^\n]+') do ids[#ids + 1] = id end
  if string.sub(ids[#ids] or '', 1, 1) == '|' then ids[#ids] = nil end
  return queue, ids
end
