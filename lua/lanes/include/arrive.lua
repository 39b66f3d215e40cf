-- @include needs
-- @include count
-- @include early
-- @include forget_record
-- @include latest
-- @include leaving

-- Has a called job that comes in time leave its place, if it may have its permits: what
-- is reserved for it is its own, so all others leave it alone. Returns since when it
-- waited, how often it was denied, since when its permits are reserved, and from when on
-- they exist; or nothing.
local function arrive(job, called, record, until_us)
  local since_us, grant_us, patience, denials = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) ?(%d*)')
  local _, at = binding(job.meters)
  if not since_us or not may_have(job, at) or latest(tonumber(since_us), job.max_wait_us, job.useful_us) <= at then return end
  local full = hg('full')
  call('ZREM', called, job.id)
  for i = 1, #job.meters do count(hg('meters'), job.meters[i].id, -job.meters[i].cost) end
  forget_record(job.name, patience)
  -- One look says whether any lane is full, which counts 3, and whether anything is
  -- left of this one.
  local there = call('EXISTS', job.waiting, called, full, full, full)
  if there >= 3 then make_room(job.lane) end
  if there % 3 == 0 then leave_if_empty(job.lane) end
  return tonumber(since_us), tonumber(denials) or 1, until_us - grant_us, at
end
