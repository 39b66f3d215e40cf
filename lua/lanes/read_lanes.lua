-- Reads for each given lane the number of waiting jobs, the costs of a sample of these jobs, and
-- the time of the lane's last turn.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] maximum number of jobs in the sample of a lane; a lane with fewer jobs is read whole
-- ARGV[2…] lanes
-- Returns for each lane a list of
--   jobs          number of waiting jobs
--   last_turn_us  the later of the lane's last turn and since_us, Unix microseconds; 0 if unknown
--   since_us      start of the wait of the sample's first readable job, Unix microseconds; 0 if no
--                 job is readable
--   costs         the costs of each job of the sample, with commas between the meters and spaces
--                 between the jobs; '?' for an unreadable job. The sample is spread over the lane
-- @include lane
local sample, BLOCK = tonumber(ARGV[1]), 4 -- jobs are read in blocks of 4, which is cheaper than one by one

local function read_sample(waiting, all)
  if all <= sample then return call('ZRANGE', waiting, 0, -1) end
  local ids, blocks = {}, floor(sample / BLOCK)
  for b = 0, blocks - 1 do
    local from = floor(b * all / blocks)
    local block = call('ZRANGE', waiting, from, from + BLOCK - 1)
    for i = 1, #block do ids[#ids + 1] = block[i] end
  end
  return ids
end

local out = {}
for i = 2, #ARGV do
  local lane = ARGV[i]
  local queue = parse_lane(lane)
  local waiting = hg('lane', lane)
  local all = call('ZCARD', waiting)
  local names, costs, since_us = read_sample(waiting, all), {}, nil
  for k = 1, #names do names[k] = queue .. '\n' .. names[k] end
  local records = #names > 0 and call('HMGET', hg('jobs'), unpack(names)) or {}
  for k = 1, #names do
    local since, cost = string.match(records[k] or '', '^[^\n]*\n(%d+)\n[^\n]*\n[^\n]*\n([%d,]+)\n')
    since_us, costs[k] = since_us or tonumber(since), cost or '?'
  end
  local turn_us = tonumber(call('HGET', hg('tickets'), lane .. TURN_SUFFIX) or nil) or 0
  out[#out + 1] = { all, math.max(turn_us, since_us or 0), since_us or 0, table.concat(costs, ' ') }
end
return out
