-- Where a waiting job stands.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue
-- ARGV[2] ID of the job
-- Returns {} where it does not wait; else {called 0 or 1, position in its lane
--   from 1, jobs in the lane, expected_us, now_us, binding limit|key, lane, known
--   0 or 1, since when it waits in microseconds}
-- @include waiting
local queue, id = ARGV[1], ARGV[2]

local r = read_job(queue, id)
if not r then return {} end
local waiting = P .. 'lane:' .. r.lane
local place = call('ZRANK', waiting, id)
local job = { meters = {} }
local _, ids = parse_lane(r.lane)
for i = 1, #ids do
  local m = load_meter(string.match(ids[i], '^([^|]*)|(.*)$'))
  if m then
    apply_block(m)
    m.cost = r.cost[i]
    job.meters[#job.meters + 1] = m
  end
end
load_reserved(job.meters)
if not place and (tonumber(call('ZSCORE', P .. 'called:' .. r.lane, id)) or 0) > 0 then
  for i = 1, #job.meters do job.meters[i].others = job.meters[i].others - job.meters[i].cost end
end
local last, expected, known = expect(job, place or 0, false)
return { place and 0 or 1, (place or 0) + 1, call('ZCARD', waiting), expected or now_us, now_us, last and last.id or ids[1], r.lane, known and 1 or 0, r.since_us }
