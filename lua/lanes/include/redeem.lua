-- @include needs
-- @include count
-- @include expiry
-- @include wait_deadline
-- @include notify_arrival

-- Returns the time until which permits are reserved for a job, Unix microseconds. It is at most 0
-- if the reservation was released, and nil if the job is not granted. If only_this is false, the
-- first call reads the times of all jobs of the group (see group.lua), and later calls use them.
local function reserved_until(job, only_this)
  if only_this or not job.reservations then
    local ids = {}
    for arg = only_this and job.arg or job.first_job, only_this and job.arg or job.last_job, 2 do ids[#ids + 1] = ARGV[arg] end
    local ends = call('ZMSCORE', hg('granted', job.lane), unpack(ids))
    job.reservations = {}
    for i = 1, #ids do job.reservations[ids[i]] = tonumber(ends[i] or nil) end
  end
  return job.reservations[job.id]
end

-- A job that takes its permits later than this after they were ready is late: arrivalTime of fairqueue.
local ARRIVAL_US = 40000

-- The granted jobs that take their reserved permits in this call, by lane: see write_redeemed.
local redeemed = {}

-- Notes in `redeemed` that a granted job takes its reserved permits, if may_take_at allows it and
-- the permits exist before the job's wait deadline. The caller then takes the permits. Returns the
-- start of the job's wait, the number of its denials, the time from which its permits were
-- reserved, and the time from which they exist at all meters. Returns nothing if the job cannot
-- take its permits.
local function redeem(job, record)
  local since_us, grant_us, expiry, denials = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) *(%d*)')
  local _, at = find_bottleneck(job.meters)
  if not since_us or not may_take_at(job, at) or wait_deadline(tonumber(since_us), job.max_wait_us, job.useful_us) <= at then return end
  local lane = redeemed[job.lane]
  if not lane then
    lane = { waiting = job.waiting, ids = {}, names = {}, expiring = {}, permits = {} }
    redeemed[job.lane] = lane
  end
  lane.late = lane.late or now_us > job.reserved_until_us - grant_us + ARRIVAL_US
  lane.ids[#lane.ids + 1], lane.names[#lane.names + 1] = job.id, job.name
  if expiry ~= NO_DEADLINE then lane.expiring[#lane.expiring + 1] = job.name end
  for i = 1, #job.meters do
    local m = job.meters[i]
    lane.permits[m.id] = (lane.permits[m.id] or 0) + m.cost
  end
  return tonumber(since_us), tonumber(denials) or 1, job.reserved_until_us - grant_us, at
end

-- Deletes the records and reservations of the jobs in redeemed, once for each lane.
local function write_redeemed()
  for name, lane in pairs(redeemed) do
    local granted, full = hg('granted', name), hg('full')
    call('ZREM', granted, unpack(lane.ids))
    for id, permits in pairs(lane.permits) do count(hg('meters'), id, -permits) end
    call('HDEL', hg('jobs'), unpack(lane.names))
    if lane.expiring[1] then call('ZREM', hg('deadlines'), unpack(lane.expiring)) end
    -- EXISTS counts a repeated key each time. So the set of full lanes adds 3 to the result if it
    -- exists, and the lane's waiting jobs and granted jobs add 1 each.
    local existing = call('EXISTS', lane.waiting, granted, full, full, full)
    if existing >= 3 or lane.late then notify_arrival(name, lane.late) end
    if existing % 3 == 0 then remove_if_empty(name) end
  end
  redeemed = {}
end
