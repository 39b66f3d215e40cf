-- @include gcra

-- Returns the TAT, converted from `rate` to the meter's rate. The permits that were in use at the
-- change of the rate, rounded up, become free at the new rate from the change on. m.owes reports
-- whether any permits were in use at the change.
local function convert_tat(m, tat, fraction, rate)
  local since_us = m.name and tonumber(call('HGET', hg('limit', m.name), 'since_us') or nil) or now_us
  if m.since_us and m.since_us > since_us then since_us = m.since_us end
  m.owes = tat >= since_us
  if not m.owes then return 0, 0 end
  local n, period_us = string.match(rate, '^(%d+) (%d+)$')
  local us, over = span(permits_of(tat - since_us, fraction, tonumber(n), tonumber(period_us)), m.n, m.period_us)
  return since_us + us, over
end
