-- Where a waiting job stands.
-- Touches: blocked (r), demand (r), grants (r), jobs (r), lane (r), limit (r),
--   m (rw), q (r), reserved (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] job
-- Returns {} where it does not wait; else {called 0 or 1, position in its lane
--   from 1, jobs in the lane, expected_us, now_us, binding limit|key, lane}
-- @include lanes
local job = ARGV[1]

local r = read_job(job)
if not r then return {} end
local lane = hg('lane', r.lane)
local rank = call('ZRANK', lane, job)
local called = rank and 0 or 1
local kept = call('ZSCORE', hg('grants'), job)
local bind, expected = r.ids[1], now_us
for i = 1, #r.ids do
  local name, key = string.match(r.ids[i], '^([^|]*)|(.*)$')
  local m = load_meter(name, key)
  if m then
    -- Lanes that wait here take turns, but no more is before it than waits.
    local others = tonumber(call('HGET', hg('demand'), m.id) or 0) - r.costs[i]
    local lanes = call('ZCARD', hg('q', m.id))
    local granted = tonumber(call('HGET', hg('reserved'), m.id) or 0) - (kept and r.costs[i] or 0)
    local before = (rank or 0) * r.costs[i] * (lanes > 1 and lanes or 1) + granted
    local at = m.ready_at((before < others and before or others) + r.costs[i])
    if at > expected then bind, expected = m.id, at end
  end
end
return { called, (rank or 0) + 1, call('ZCARD', lane), expected, now_us, bind, r.lane }
