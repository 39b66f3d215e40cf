-- @include count

-- Reads the number of permits of each meter that are reserved for granted jobs, and the number of
-- its lanes, if known. It reads them again only after this call has changed a reserved counter.
local function load_reserved(meters)
  for i = 1, #meters do
    local m = meters[i]
    if m.reserved_version ~= reserved_version then
      local of = call('HMGET', hg('meters'), m.id, m.id .. LANES_SUFFIX)
      m.reserved_version, m.granted, m.lanes = reserved_version, parse_counter(of[1]), tonumber(of[2] or nil)
    end
    m.reserved = m.granted
  end
end
