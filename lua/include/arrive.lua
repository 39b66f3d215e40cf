-- @include needs
-- @include leaving

-- Has a called job that comes in time leave its place, if its permits exist: what
-- is reserved for it is its own, so all others leave it alone. Returns since when
-- it waited, how often it was denied, and since when its permits exist; or nothing.
local function arrive(name, id, lane, record, meters, until_us)
  local since_us, grant_us, patience, denials = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) ?(%d*)')
  local _, at = binding(meters)
  if not since_us or at > now_us then return end
  call('ZREM', hg('called', lane), id)
  for i = 1, #meters do count(hg('reserved'), meters[i].id, -meters[i].cost) end
  make_room(lane)
  forget_record(name, lane, patience)
  return tonumber(since_us), tonumber(denials) or 1, until_us - grant_us
end
