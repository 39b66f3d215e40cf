-- @include scope

-- What a limit has beside its summary: whether it is paused, and until when the
-- meter is shut, if an upstream's answer shut it; and the key's record, if it has
-- one, with the limit's margin and, if it adapts, the latency it wants. Returns nil where the limit
-- is not for the app.
local function load_rest(name, key, app)
  local apps, paused, blocked_us, overrides, margin_us, adapts =
    unpack(call('HMGET', hg('limit', name), 'apps', 'paused', 'blocked_us', 'overrides', 'margin_us', 'adapt_latency_us'))
  if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
    return nil
  end
  local ends
  if blocked_us and tonumber(blocked_us) > now_us then
    ends = tonumber(call('ZSCORE', hg('blocked', name), key) or 0)
    ends = ends > now_us and ends or nil
  end
  local record = overrides and call('HGET', hg('overrides', name), key)
  return paused and true or false, ends, record, margin_us, adapts
end
