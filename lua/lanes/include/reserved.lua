-- @include count

-- Reads how many permits of each meter are reserved for granted jobs, and how many lanes take turns
-- there, if that has been counted: once, and again after this call has changed a count.
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
