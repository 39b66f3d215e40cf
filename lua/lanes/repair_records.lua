-- Checks the records of waiting and granted jobs, and counts the permits for which the jobs wait.
-- A record is deleted if it is malformed, or if the job is not in the lane that the record names and
-- has not left the lane. If Redis lost the wait deadline of a job, expire_waits.lua returns the job, so
-- that it asks again, and its wait goes on.
-- The reconciler then returns the job of a deleted record to its queue. A lane that is not
-- registered is registered again.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] name of each job: "<queue>\n<ID>"
-- Returns {number of repairs, then two values for each meter that a waiting job needs: the meter,
--   and the number of its permits for which the given jobs wait}
-- @include jobs
-- @include lane
-- @include register

local records, repairs, checked, wanted = call('HMGET', hg('jobs'), unpack(ARGV)), 0, {}, {}

-- Checks the record of a job, and counts the job's permits if the job waits. The first result
-- reports whether the record is consistent. The second result of a consistent record is the job's
-- lane, or false if the job has left its lane: see expiry.lua.
local function check_record(name, record)
  local queue, id = string.match(name, '^([^\n]*)\n(.*)$')
  local r = queue and parse_job(record)
  if not r or string.sub(r.lane, 1, #queue + 1) ~= queue .. '\n' then return false end
  local has_left = r.expiry > HAS_DEADLINE
  if not has_left then
    local waits = call('ZSCORE', hg('lane', r.lane), id)
    if not waits and not call('ZSCORE', hg('granted', r.lane), id) then return false end
    for i = 1, waits and #r.ids or 0 do wanted[r.ids[i]] = (wanted[r.ids[i]] or 0) + r.cost[i] end
  end
  if r.expiry ~= NO_DEADLINE and not call('ZSCORE', hg('deadlines'), name) then
    call('ZADD', hg('deadlines'), 0, name)
    repairs = repairs + 1
  end
  return true, not has_left and r.lane
end

-- Registers a lane that has no number.
local function check_lane(lane)
  if checked[lane] or call('ZSCORE', hg('lanes'), lane) then return end
  local _, ids = parse_lane(lane)
  register_lane(lane, ids[1])
  repairs = repairs + 1
end

for i = 1, #ARGV do
  if records[i] then
    local consistent, lane = check_record(ARGV[i], records[i])
    if not consistent then
      forget_record(ARGV[i], HAS_DEADLINE)
      repairs = repairs + 1
    elseif lane then
      check_lane(lane)
      checked[lane] = true
    end
  end
end
local out = { repairs }
for id, permits in pairs(wanted) do
  out[#out + 1], out[#out + 2] = id, permits
end
return out
