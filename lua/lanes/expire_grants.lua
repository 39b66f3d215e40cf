-- Lists the granted jobs of lanes, and releases reserved permits that a job did not take in time.
-- The job of a released reservation stays granted, and takes free permits when it arrives. A
-- granted job is removed if its record is missing or names another lane. If the reservation of such
-- a job expires, its cost is unknown, so the reserved permits of the lane's meters are reset to 0.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lanes
-- Returns for each lane a list of
--   waiting   number of waiting jobs
--   granted   number of granted jobs
--   reserved  IDs of up to 1000 granted jobs with reserved permits
--   overdue   IDs of up to 1000 granted jobs whose reservation has expired
-- @include lanes

-- Returns those of the given granted jobs whose record names the lane, and removes the other ones
-- from the granted jobs of the lane.
local function with_records(queue, lane, granted, jobs)
  local names, out = {}, {}
  for i = 1, #jobs do names[i] = queue .. '\n' .. jobs[i] end
  local records = #jobs > 0 and call('HMGET', hg('jobs'), unpack(names))
  for i = 1, #jobs do
    if records[i] and string.sub(records[i], -#lane - 1) == '\n' .. lane then
      out[#out + 1] = jobs[i]
    else
      call('ZREM', granted, jobs[i])
    end
  end
  return out
end

-- Releases up to 100 expired reservations of a lane, and returns the lane's row of the result.
local function expire(lane)
  local queue, ids = parse_lane(lane)
  local granted = hg('granted', lane)
  local ended = call('ZRANGEBYSCORE', granted, '(0', int(now_us), 'LIMIT', 0, 100)
  for i = 1, #ended do
    local r = read_job(queue, ended[i])
    call('ZADD', granted, 0, ended[i])
    if r and r.lane == lane then
      count_all(hg('meters'), r, -1)
    else
      call('HDEL', hg('meters'), unpack(ids))
    end
  end
  local reserved = with_records(queue, lane, granted, call('ZRANGEBYSCORE', granted, '(0', '+inf', 'LIMIT', 0, 1000))
  local overdue = with_records(queue, lane, granted, call('ZRANGEBYSCORE', granted, '-inf', 0, 'LIMIT', 0, 1000))
  local out = { call('ZCARD', hg('lane', lane)), call('ZCARD', granted), reserved, overdue }
  if #ended > 0 then notify_freed(lane) end
  remove_if_empty(lane)
  return out
end

local out = {}
for i = 1, #ARGV do out[i] = expire(ARGV[i]) end
return out
