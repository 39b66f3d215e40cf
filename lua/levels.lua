-- How full meters are, and what holds their limits shut. It changes nothing.
-- Touches: blocked (r), limit (r), m (rw), overrides (r), reserved (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] limit, key of each
-- Returns for each {permits used, capacity, 1 where the limit is paused, how many
--   of its keys are blocked, permits that come back in a period, that period in
--   microseconds, or 0 where leases decide}; {} where there is no such limit
-- @include meter
-- @include reserved

local function level(name, key)
  local m = load_meter(name, key)
  if not m then return {} end
  load_reserved({ m })
  local used = m.capacity - (m.open_left or m.left)() + m.reserved
  local blocked = call('ZCOUNT', hg('blocked', name), '(' .. int(now_us), '+inf')
  local leases = string.match(m.state, '^[a-z_]+', #hg('m') + 2) == 'concurrency'
  return {
    math.min(used, m.capacity), m.capacity, call('HEXISTS', hg('limit', name), 'paused'), blocked,
    leases and 0 or m.n, leases and 0 or m.period_us,
  }
end

local out = {}
for i = 1, #ARGV, 2 do out[#out + 1] = level(ARGV[i], ARGV[i + 1]) end
return out
