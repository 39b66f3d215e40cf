-- @include count

-- Reads for each meter the number of permits that are reserved for granted jobs, and the number of
-- lanes that share the meter (nil if unknown). A meter is read again only after this call has
-- changed the reserved permits of any meter.
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
