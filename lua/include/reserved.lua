-- @include counted

-- Has every meter count the permits that are reserved for called jobs, and know how
-- many lanes take turns there, if that has been counted.
local function load_reserved(meters)
  for i = 1, #meters do
    local m = meters[i]
    local of = call('HMGET', hg('meters'), m.id, m.id .. LANES)
    m.reserved, m.lanes = counted(of[1]), tonumber(of[2] or nil)
  end
end
