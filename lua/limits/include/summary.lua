-- @include limits

-- Stores the part of a limit's definition that every call needs as one text: "kind n period_us
-- capacity", and a mark if there is more to read. A definition that lacks one of these counts as
-- lost: see meter.lua.
local function store_summary(name)
  local d = call('HMGET', hg('limit', name), 'kind', 'n', 'period_us', 'capacity', 'apps', 'paused', 'blocked_us', 'overrides', 'adapt_n')
  local suffix = (d[5] or d[6] or d[7] or d[8] or d[9]) and ' +' or ''
  local summary = (d[1] or '') .. ' ' .. (d[2] or '') .. ' ' .. (d[3] or '') .. ' ' .. (d[4] or '') .. suffix
  call('HSET', hg('summaries'), name, summary)
  limits[name] = nil
  return summary
end
