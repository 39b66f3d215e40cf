-- @include needs
-- @include count
-- @include latest
-- @include leaving

-- Returns until when permits are reserved for a job: 0 if they are not any more, and nil if it is
--   not granted. It looks once for a whole group, unless others come between its jobs.
local function until_of(job, alone)
  if alone or not job.untils then
    local ids = {}
    for k = alone and job.at or job.first, alone and job.at or job.last, 2 do ids[#ids + 1] = ARGV[k] end
    local untils = call('ZMSCORE', hg('granted', job.lane), unpack(ids))
    job.untils = {}
    for i = 1, #ids do job.untils[ids[i]] = tonumber(untils[i] or nil) end
  end
  return job.untils[job.id]
end

-- Granted jobs that leave their lane, by lane: they are written together.
local left = {}

-- Has a granted job that comes in time leave its lane, if it may take its permits: what is reserved
-- for it is its own. Returns since when it waited, how often it was denied, since when its permits
-- are reserved, and from when on they exist; or nothing.
local function arrive(job, record)
  local since_us, grant_us, expiry, denials = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) *(%d*)')
  local _, at = binding(job.meters)
  if not since_us or not may_have(job, at) or latest(tonumber(since_us), job.max_wait_us, job.useful_us) <= at then return end
  local l = left[job.lane]
  if not l then
    l = { waiting = job.waiting, ids = {}, names = {}, expiring = {}, permits = {} }
    left[job.lane] = l
  end
  l.ids[#l.ids + 1], l.names[#l.names + 1] = job.id, job.name
  if expiry ~= '0' then l.expiring[#l.expiring + 1] = job.name end
  for i = 1, #job.meters do
    local m = job.meters[i]
    l.permits[m.id] = (l.permits[m.id] or 0) + m.cost
  end
  return tonumber(since_us), tonumber(denials) or 1, job.until_us - grant_us, at
end

-- Writes what the jobs that arrived leave.
local function leave()
  for lane, l in pairs(left) do
    local granted, full = hg('granted', lane), hg('full')
    call('ZREM', granted, unpack(l.ids))
    for id, permits in pairs(l.permits) do count(hg('meters'), id, -permits) end
    call('HDEL', hg('jobs'), unpack(l.names))
    if l.expiring[1] then call('ZREM', hg('deadlines'), unpack(l.expiring)) end
    -- One command says whether any lane is full, which counts 3, and whether anything is left of
    -- this one.
    local there = call('EXISTS', l.waiting, granted, full, full, full)
    if there >= 3 then make_room(lane) end
    if there % 3 == 0 then leave_if_empty(lane) end
  end
  left = {}
end
