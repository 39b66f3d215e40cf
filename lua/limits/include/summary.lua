-- @include scope

-- Keeps the part of a limit's definition that every call needs in one field:
-- "kind n period_us capacity", and a mark where there is more to read.
local function store_summary(name)
  local limit = hg('limit', name)
  local d = call('HMGET', limit, 'kind', 'n', 'period_us', 'capacity', 'apps', 'paused', 'blocked_us', 'overrides', 'adapt_n')
  local mark = (d[5] or d[6] or d[7] or d[8] or d[9]) and ' +' or ''
  call('HSET', limit, 'summary', table.concat({ d[1], d[2], d[3], d[4] }, ' ') .. mark)
end
