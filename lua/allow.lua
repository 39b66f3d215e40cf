-- Takes the permits of all limits named in one step, or none of them.
-- For callers outside a queue: it leaves permits reserved for called jobs alone,
-- and a denial changes nothing.
-- Touches: blocked (r), deleted (r), jobs (r), limit (r), m (rw), meters (r),
--   overrides (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2] holder of leases on concurrency limits
-- ARGV[3…] limit, key, cost for each need; cost 0 looks without taking
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, shortest lease in microseconds or 0}; {4, index, now_us,
--   1 if Redis lost the limit}; {6, names, now_us} where calendars must be extended
-- @include take
local app, holder = ARGV[1], ARGV[2]

local meters, refusal = load_needs(3, app, holder)
if not meters then return refusal end

local function answer()
  local bind, at = binding(meters)
  if at > now_us then return reply(DENIED, bind, at) end
  return take_all(meters)
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if call('EXISTS', hg('jobs')) == 0 then return answer() end

-- @include reserved

load_reserved(meters)
return answer()
