-- Takes the permits of all limits named in one step, or none of them.
-- For callers outside a queue: it leaves to jobs what is reserved for those called,
-- and where a lane waits what all want that wait there. A denial changes nothing.
-- Touches: blocked (r), contended (r), deleted (r), demand (r), jobs (r), limit (r),
--   m (rw), meters (r), overrides (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2] holder of leases on concurrency limits
-- ARGV[3…] limit, key, cost for each need; cost 0 looks without taking
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, shortest lease in microseconds or 0}; {4, index, now_us,
--   1 if Redis lost the limit}; {6, names, now_us} where calendars must be extended
-- @include take
local app, holder = ARGV[1], ARGV[2]

local meters, refusal = load_needs(3, #ARGV, app, holder)
if not meters then return refusal end

local function answer()
  local bind, at = binding(meters)
  if bind.cost == 0 then at = bind.ready_at(0) end -- who looks takes nothing from anybody
  if at > now_us then return reply(DENIED, bind, at) end
  return take_all(meters)
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if call('EXISTS', hg('jobs')) == 0 then return answer() end

-- @include reserved

load_reserved(meters)
local ids = {}
for i = 1, #meters do ids[i] = meters[i].id end
local marks = call('HMGET', hg('contended'), unpack(ids))
for i = 1, #meters do
  local m = meters[i]
  if marks[i] then m.reserved = m.reserved + (tonumber(call('HGET', hg('demand'), m.id) or 0) or 0) end
end
return answer()
