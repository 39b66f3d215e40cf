-- @include scope

-- Applies the record of a key to its meter, as of the time `at`: the override's rate and capacity,
-- if the override is of the limit's kind and has not ended; and the share of the rate, if the limit
-- adapts. While the override lasts, the meter's state expires so late that the limit's own rate
-- finds it after the override. A malformed record is ignored.
local function override(m, kind, record, margin_us, at, adapts)
  local override_kind, n, per_us, capacity, ends_us, since_us, share, rate_limited =
    string.match(record, '^%S+ (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) ([1-9]%d*) (%d+)')
  if not override_kind or n ~= '0' and per_us == '0' then return end
  n, capacity, ends_us, share = tonumber(n), tonumber(capacity), tonumber(ends_us), tonumber(share)
  m.since_us, m.wants_feedback = tonumber(since_us), rate_limited ~= '0' or share < 1000000
  if override_kind == kind and (ends_us == 0 or ends_us > at) then
    local interval_us = m.period_us / m.n
    if ends_us > 0 then
      m.ends_us = ends_us
      m.extra_ttl_ms = ceil((ends_us - at + m.capacity * m.period_us / m.n) / 1000)
    end
    if n > 0 then
      m.n = n
      if kind ~= 'fixed_window' then m.period_us = tonumber(per_us) + margin_us end
      if kind ~= 'funnel' and kind ~= 'token_bucket' then m.capacity = n end
    end
    if capacity > 0 then m.capacity = capacity end
    if ends_us > 0 then m.slowdown = interval_us / (m.period_us / m.n) end
  elseif ends_us > m.since_us and ends_us <= at then
    m.since_us = ends_us
  end
  if adapts and share < 1000000 then m.period_us = math.min(ceil(m.period_us * 1000000 / share), MAX_INT) end
  m.rate = int(m.n) .. ' ' .. int(m.period_us)
end
