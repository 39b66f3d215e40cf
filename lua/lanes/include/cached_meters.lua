-- @include meter
-- @include count

-- The meters that this call has read. Only their reserved permits change during the call.
local loaded, stale = {}, {}
local function cached_meter(id)
  local m = loaded[id]
  if m ~= nil then return m end
  local name, key = string.match(id, '^([^|]*)|(.*)$')
  m = load_meter(name, key) or false
  if m then
    m.reserved, m.newly_reserved = parse_counter(call('HGET', hg('meters'), id)), 0
    if m.stale then stale[#stale + 1] = name end
  end
  loaded[id] = m
  return m
end
