-- Checks that waiting jobs stand where their records say, and counts what they want. It drops a
-- record that cannot be read, or whose job stands elsewhere: asynq shows that the job is denied and
-- unknown, and it is sent back to ask. A lane that has lost its number gets another.
-- Touches: contended (w), deadlines (rw), granted (r), jobs (rw), lane (r), lanes (rw), seq (w),
--   wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] queue and ID, one a line, of each job
-- Returns {how many were not in order, then each meter that a waiting job needs, and how many
--   permits all waiting jobs want of it}
-- @include jobs
-- @include lane
-- @include announce

local records, mended, seen, wanted = call('HMGET', hg('jobs'), unpack(ARGV)), 0, {}, {}

-- Returns the lane of a job that waits there or is granted, '' if the job has left it because its
--   wait has expired, and else nil.
local function lane_of(name, record)
  local queue, id = string.match(name, '^([^\n]*)\n(.*)$')
  local r = queue and parse_job(record)
  if not r or string.sub(r.lane, 1, #queue + 1) ~= queue .. '\n' then return nil end
  local lane = r.expiry > '1' and '' or r.lane
  local waits = lane ~= '' and call('ZSCORE', hg('lane', lane), id)
  if lane ~= '' and not waits and not call('ZSCORE', hg('granted', lane), id) then return nil end
  for i = 1, waits and #r.ids or 0 do wanted[r.ids[i]] = (wanted[r.ids[i]] or 0) + r.cost[i] end
  if r.expiry ~= '0' and not call('ZSCORE', hg('deadlines'), name) then
    call('ZADD', hg('deadlines'), int(now_us), name) -- the job knows its deadline itself
    mended = mended + 1
  end
  return lane
end

for i = 1, #ARGV do
  local lane = records[i] and lane_of(ARGV[i], records[i])
  if records[i] and not lane then
    forget_record(ARGV[i], '1')
    mended = mended + 1
  elseif lane and lane ~= '' and not seen[lane] then
    seen[lane] = true
    if not call('ZSCORE', hg('lanes'), lane) then
      local _, ids = parse_lane(lane)
      announce(lane, ids[1])
      mended = mended + 1
    end
  end
end
local out = { mended }
for id, permits in pairs(wanted) do
  out[#out + 1], out[#out + 2] = id, permits
end
return out
