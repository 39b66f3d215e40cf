-- Where waiting jobs stand.
-- Touches: blocked (r), called (r), demand (r), jobs (r), lane (r), limit (r),
--   m (rw), meters (r), overrides (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue, ID of each job
-- Returns for each job {} where it does not wait; else {called 0 or 1, position in
--   its lane from 1, jobs in the lane, expected_us, now_us, binding limit|key,
--   lane, known 0 or 1, since when it waits in microseconds}
-- @include meter
-- @include expect
-- @include lanes

-- The meters that a job needs, but for those whose limit is gone.
local function meters_of(r)
  local meters = {}
  local _, ids = parse_lane(r.lane)
  for i = 1, #ids do
    local m = load_meter(string.match(ids[i], '^([^|]*)|(.*)$'))
    if m then
      m.cost = r.cost[i]
      meters[#meters + 1] = m
    end
  end
  load_reserved(meters)
  return meters, ids
end

local function place_of(queue, id)
  local r = read_job(queue, id)
  if not r then return {} end
  local place = call('ZRANK', hg('lane', r.lane), id)
  local meters, ids = meters_of(r)
  if not place and (tonumber(call('ZSCORE', hg('called', r.lane), id)) or 0) > 0 then
    for i = 1, #meters do meters[i].reserved = meters[i].reserved - meters[i].cost end
  end
  local last, expected, known = expect(meters, place or 0, false)
  return {
    place and 0 or 1, (place or 0) + 1, call('ZCARD', hg('lane', r.lane)), expected or now_us, now_us,
    last and last.id or ids[1], r.lane, (known or not last) and 1 or 0, r.since_us,
  }
end

local out = {}
for i = 1, #ARGV, 2 do out[#out + 1] = place_of(ARGV[i], ARGV[i + 1]) end
return out
