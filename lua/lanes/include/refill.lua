-- @include meter

-- How long k permits take to come again: a funnel gives them back one by one, a
-- window all at its end, a concurrency meter when a lease ends.
local function refill_us(m, k)
  if m.lease_us then return m.lease_us end
  local kind = string.match(m.state, '^[a-z_]+', #hg('m') + 2)
  if kind ~= 'funnel' and kind ~= 'token_bucket' then return m.period_us end
  return math.min(ceil(k * m.period_us / m.n), FAR)
end
