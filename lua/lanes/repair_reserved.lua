-- Counts anew what is reserved of meters for granted jobs. A granted job without a record of its
-- lane is granted no more.
-- Touches: changes (w), granted (rw), jobs (r), leader (r), meters (rw), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] leader, and so knows of which lanes jobs are granted
-- ARGV[2] meters, one a line
-- ARGV[3…] all lanes of which jobs are granted that need one of them
-- Returns of how many meters another number was reserved
-- @include jobs
-- @include lane
-- @include change
local process, meters = ARGV[1], ARGV[2]

if call('GET', hg('leader')) ~= process then return 0 end
local reserved, wrong = {}, 0
for meter in string.gmatch(meters, '[^\n]+') do reserved[meter] = 0 end

local function count_granted(lane)
  local queue, ids = parse_lane(lane)
  local jobs = call('ZRANGEBYSCORE', hg('granted', lane), '(0', '+inf')
  for i = 1, #jobs do
    local r = read_job(queue, jobs[i])
    if not r or r.lane ~= lane then call('ZREM', hg('granted', lane), jobs[i]) end
    for k = 1, r and r.lane == lane and #ids or 0 do
      if reserved[ids[k]] then reserved[ids[k]] = reserved[ids[k]] + r.cost[k] end
    end
  end
end

for i = 3, #ARGV do count_granted(ARGV[i]) end
for meter, permits in pairs(reserved) do
  if (call('HGET', hg('meters'), meter) or '0') ~= int(permits) then
    if permits > 0 then call('HSET', hg('meters'), meter, int(permits)) else call('HDEL', hg('meters'), meter) end
    changed('meter', meter)
    wrong = wrong + 1
  end
end
return wrong
