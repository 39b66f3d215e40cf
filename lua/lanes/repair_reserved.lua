-- Corrects the number of permits that are reserved at a meter for granted jobs. A job is removed
-- from the granted jobs of a lane if its record is missing or names another lane.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] calling process. Only the leader corrects, because it knows all lanes with granted jobs
-- ARGV[2] meter
-- ARGV[3…] all lanes with granted jobs that need the meter
-- Returns 1 if the number was wrong; 0 if it was right or the process does not lead
-- @include jobs
-- @include lane
-- @include change
local process, meter, reserved = ARGV[1], ARGV[2], 0
if call('GET', hg('leader')) ~= process then return 0 end

for i = 3, #ARGV do
  local lane = ARGV[i]
  local queue, ids = parse_lane(lane)
  local jobs = call('ZRANGEBYSCORE', hg('granted', lane), '(0', '+inf')
  for k = 1, #jobs do
    local r = read_job(queue, jobs[k])
    if r and r.lane == lane then
      for n = 1, #ids do reserved = reserved + (ids[n] == meter and r.cost[n] or 0) end
    else
      call('ZREM', hg('granted', lane), jobs[k])
    end
  end
end
if (call('HGET', hg('meters'), meter) or '0') == int(reserved) then return 0 end
if reserved > 0 then call('HSET', hg('meters'), meter, int(reserved)) else call('HDEL', hg('meters'), meter) end
publish_change('meter', meter)
return 1
