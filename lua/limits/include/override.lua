-- @include scope

-- Applies the record of a key to the key's meter. An override for the limit's kind sets the rate
-- and the capacity. If the limit adapts, the share lowers the rate. A malformed record is ignored.
local function override(m, kind, record, margin_us, adapts)
  local override_kind, n, per_us, capacity, since_us, share, rate_limited =
    string.match(record, '^%S+ (%S+) (%d+) (%d+) (%d+) (%d+) ([1-9]%d*) (%d+)')
  if not override_kind or n ~= '0' and per_us == '0' then return end
  n, capacity, share = tonumber(n), tonumber(capacity), tonumber(share)
  m.since_us, m.wants_feedback = tonumber(since_us), rate_limited ~= '0' or share < 1000000
  if override_kind == kind then
    if n > 0 then
      m.n = n
      if kind ~= 'fixed_window' then m.period_us = tonumber(per_us) + margin_us end
      if kind ~= 'funnel' and kind ~= 'token_bucket' then m.capacity = n end
    end
    if capacity > 0 then m.capacity = capacity end
  end
  if adapts and share < 1000000 then m.period_us = math.min(ceil(m.period_us * 1000000 / share), MAX_INT) end
  m.rate = int(m.n) .. ' ' .. int(m.period_us)
end
