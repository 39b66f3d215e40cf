-- @include count

-- Has every meter count the permits that are reserved for granted jobs, and know how
-- many lanes take turns there, if that has been counted. They are read once, and anew
-- after something was counted here.
local function load_reserved(meters)
  for i = 1, #meters do
    local m = meters[i]
    if m.counts ~= counts then
      local of = call('HMGET', hg('meters'), m.id, m.id .. LANES)
      m.counts, m.granted, m.lanes = counts, counted(of[1]), tonumber(of[2] or nil)
    end
    m.reserved = m.granted
  end
end
