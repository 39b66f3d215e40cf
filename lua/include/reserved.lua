-- @include scope

-- Has every meter count the permits that are reserved for called jobs.
local function load_reserved(meters)
  for i = 1, #meters do meters[i].reserved = tonumber(call('HGET', hg('reserved'), meters[i].id) or 0) end
end
