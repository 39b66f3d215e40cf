-- @include scope

-- A lane's queue and the ids of its meters.
local function parse_lane(lane)
  local queue, rest = string.match(lane, '^([^\n]*)\n(.*)$')
  local ids = {}
  for id in string.gmatch(rest or '', '[^\n]+') do ids[#ids + 1] = id end
  return queue, ids
end
