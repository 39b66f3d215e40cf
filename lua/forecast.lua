-- When permits would exist for those who come after everything that waits.
-- Touches: blocked (r), demand (r), limit (r), m (rw), overrides (r),
--   reserved (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2…] limit, key, permits for each need
-- Returns for each need now_us, ready_at_us, permits that wait there already,
--   known 0 where nobody can tell when they exist; ready_at_us is -1 where there is
--   no such limit
-- @include meter
local app = ARGV[1]

local out = {}
for i = 2, #ARGV, 3 do
  local m = load_meter(ARGV[i], ARGV[i + 1], app)
  local waiting, at, known = 0, -1, 0
  if m then
    waiting = tonumber(call('HGET', hg('demand'), m.id) or 0) + tonumber(call('HGET', hg('reserved'), m.id) or 0)
    at = m.ready_at(waiting + tonumber(ARGV[i + 2]))
    known = (m.known or at <= now_us) and 1 or 0
  end
  out[#out + 1] = now_us
  out[#out + 1] = at
  out[#out + 1] = waiting
  out[#out + 1] = known
end
return out
