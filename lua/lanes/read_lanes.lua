-- Reads the number of waiting jobs of lanes, the costs of a sample of the jobs, and the time of the
-- last turn.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] number of jobs in a sample; a lane with fewer jobs is read whole
-- ARGV[2…] lanes
-- Returns for each lane a list of
--   jobs          number of waiting jobs
--   last_turn_us  time of its last turn, or the start of its first job's wait if that is later
--   since_us      start of its first job's wait, Unix microseconds, 0 if it is unknown
--   costs         costs of each job of a sample that is spread evenly over the lane, separated by
--                 spaces; '?' if they cannot be read
-- @include lane
local sample, BLOCK = tonumber(ARGV[1]), 4 -- consecutive jobs are cheaper to read

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
