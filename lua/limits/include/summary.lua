-- @include limits

-- Keeps the part of a limit's definition that every call needs in one text:
-- "kind n period_us capacity", and a mark where there is more to read.
local function store_summary(name)
  local d = call('HMGET', hg('limit', name), 'kind', 'n', 'period_us', 'capacity', 'apps', 'paused', 'blocked_us', 'overrides', 'adapt_n')
  local mark = (d[5] or d[6] or d[7] or d[8] or d[9]) and ' +' or ''
  local summary = table.concat({ d[1], d[2], d[3], d[4] }, ' ') .. mark
  call('HSET', hg('summaries'), name, summary)
  limits[name] = nil
  return summary
end
