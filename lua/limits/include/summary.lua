-- @include limits

-- Stores and returns what every call needs of a limit's definition: "kind n period_us capacity". A
-- " +" follows if calls must read other fields of the limit, too. If one of the four words is
-- missing, load_meter returns nil, as for a limit that does not exist.
local function store_summary(name)
  local d = call('HMGET', hg('limit', name), 'kind', 'n', 'period_us', 'capacity', 'apps', 'paused', 'blocked_us', 'overrides', 'adapt_n')
  local suffix = (d[5] or d[6] or d[7] or d[8] or d[9]) and ' +' or ''
  local summary = (d[1] or '') .. ' ' .. (d[2] or '') .. ' ' .. (d[3] or '') .. ' ' .. (d[4] or '') .. suffix
  call('HSET', hg('summaries'), name, summary)
  limits[name] = nil
  return summary
end
