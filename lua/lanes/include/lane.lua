-- @include scope

-- Parses a lane's name. Returns the queue and the list of meter IDs, without the fairness key. The
-- queue is nil if the name has no newline.
local function parse_lane(lane)
  local queue, rest = string.match(lane, '^([^\n]*)\n(.*)$')
  local ids = {}
  for id in string.gmatch(rest or '', '[^\n]+') do ids[#ids + 1] = id end
  if string.sub(ids[#ids] or '', 1, 1) == '|' then ids[#ids] = nil end
  return queue, ids
end
