-- @include scope

-- The part of a limit's definition that every call needs, as one field: "kind n
-- period_us capacity", and a mark where there is more to read.
local function store_gist(limit)
  local d = call('HMGET', limit, 'kind', 'n', 'period_us', 'capacity', 'apps', 'paused')
  local mark = (d[5] or d[6]) and ' +' or ''
  call('HSET', limit, 'gist', table.concat({ d[1], d[2], d[3], d[4] }, ' ') .. mark)
end
