-- Returns the positions of waiting jobs.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue, ID of each job
-- Returns for each job {} if it has no readable record or if its data are corrupt; else a list of
--   granted     1 if the job is granted, else 0
--   position    place of the job in its lane, from 1; 1 if the job is granted
--   in_lane     number of waiting jobs in the lane
--   start_us    expected start of the job, Unix microseconds
--   now_us      Redis's clock, Unix microseconds
--   bottleneck  meter with the longest wait: limit|key
--   lane        name of the lane
--   known       1 if the start is known, else 0
--   since_us    start of the job's wait, Unix microseconds
-- @include meter
-- @include missing
-- @include estimate
-- @include lanes
-- @include try

-- Returns the meters that a job needs. A meter whose limit does not exist is closed.
local function meters_of(r)
  local meters = {}
  for i = 1, #r.ids do
    local name, key = string.match(r.ids[i], '^([^|]*)|(.*)$')
    local m = load_meter(name, key) or missing_meter(r.ids[i], name)
    m.cost, m.index, meters[i] = r.cost[i], i, m
  end
  load_reserved(meters)
  return meters
end

-- Returns the costs of the first jobs of a lane, at most FIRST; false for an unreadable job. Each
-- lane is read once in a call.
local FIRST, cached_costs = 32, {}
local function first_costs(queue, lane)
  if cached_costs[lane] then return cached_costs[lane] end
  local costs, names = {}, call('ZRANGE', hg('lane', lane), 0, FIRST - 1)
  for i = 1, #names do names[i] = queue .. '\n' .. names[i] end
  local records = call('HMGET', hg('jobs'), unpack(names))
  for i = 1, #names do
    local r = records[i] and parse_job(records[i])
    costs[i] = r and r.cost or false
  end
  cached_costs[lane] = costs
  return costs
end

-- Returns for each meter the average cost of the `ahead` jobs that are ahead of a job in its lane.
-- `others` is the number of all other jobs of the lane. The costs of the first FIRST jobs are read.
-- If no other lane shares the meter, the costs of the remaining jobs follow from the meter's
-- demand. If lanes share it, the remaining jobs are assumed to cost as much as the jobs read.
local function average_costs(queue, lane, meters, ahead, others)
  local costs, average = first_costs(queue, lane), {}
  local counted = math.min(ahead, #costs)
  for i = 1, #meters do
    local m, sum = meters[i], 0
    for k = 1, counted do sum = sum + (costs[k] and costs[k][m.index] or 0) end
    if ahead > counted and is_alone(m) then
      sum = sum + (m.before - sum) * (ahead - counted) / (others - counted)
    else
      sum = sum * ahead / counted
    end
    average[i] = sum / ahead
  end
  return average
end

local function position_of(queue, id)
  local r = read_job(queue, id)
  if not r then return {} end
  local ahead, in_lane = call('ZRANK', hg('lane', r.lane), id), call('ZCARD', hg('lane', r.lane))
  local meters = meters_of(r)
  if not ahead and (tonumber(call('ZSCORE', hg('granted', r.lane), id)) or 0) > 0 then
    for i = 1, #meters do meters[i].reserved = meters[i].reserved - meters[i].cost end
  end
  load_before(meters, ahead)
  local average = ahead and ahead > 0 and average_costs(queue, r.lane, meters, ahead, in_lane - 1)
  local deciding, expected, known = estimate_start(meters, ahead or 0, average, false)
  return {
    ahead and 0 or 1, (ahead or 0) + 1, in_lane, expected or now_us, now_us,
    deciding and deciding.id or r.ids[1], r.lane, known and 1 or 0, r.since_us,
  }
end

local out = {}
for i = 1, #ARGV, 2 do out[#out + 1] = try(position_of, ARGV[i], ARGV[i + 1]) or {} end
return out
