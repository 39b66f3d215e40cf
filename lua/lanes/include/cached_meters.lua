-- @include meter
-- @include count

-- loaded holds the meters that this call has read, by ID; false for a limit that does not exist.
-- Only the reserved permits of a meter change during the call. stale lists the names of limits
-- whose calendars must be extended.
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
