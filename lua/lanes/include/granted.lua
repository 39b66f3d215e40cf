-- @include wait_deadline
-- @include lanes
-- @include notify_arrival
-- @include waiting

-- States of a granted job when it calls acquire: permits are reserved for it, or its reservation
-- has expired and it found no other one.
local RESERVED, OVERDUE = 1, 2

-- Ends a job's grant, and releases reserved permits for the job to take. If the job's own
-- reservation has expired, the job takes over the earliest suitable reservation of its lane with
-- the same costs. The job that had this reservation becomes overdue. Returns the state, whether the
-- job is late, and the time from which the permits were reserved, or nil if the state is OVERDUE.
local function take_reservation(job, r, reserved_until_us)
  local granted = hg('granted', r.lane)
  call('ZREM', granted, job.id)
  local late, reserved_at_us = reserved_until_us <= 0, reserved_until_us - r.grant_us
  if late then
    local others = call('ZRANGEBYSCORE', granted, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 10)
    local other
    for i = #others - 1, 1, -2 do
      local candidate = read_job(job.queue, others[i])
      local from = candidate and tonumber(others[i + 1]) - candidate.grant_us
      if candidate and candidate.costs == r.costs and may_take_at(job, from) then other, reserved_at_us = others[i], from end
    end
    if not other then return OVERDUE, true end
    call('ZADD', granted, 0, other)
  end
  count_all(hg('meters'), r, -1)
  return RESERVED, late, reserved_at_us
end

-- Decides whether a job with a record takes its permits now, and returns the time from which they
-- exist. If the job takes them, it leaves its lane. Else it waits, and the second result is the
-- reply of wait_in_lane. An overdue job takes its permits only if they are free now. While there is
-- no leader, this is also so for the first waiting job of a lane.
local function take_or_wait(job, r, granted, late)
  if granted ~= RESERVED then load_reserved(job.meters) end
  local bottleneck, at = find_bottleneck(job.meters)
  if granted then notify_arrival(job.lane, late) end
  local may_take = granted == RESERVED and may_take_at(job, at) or granted and at <= now_us
  if may_take or not granted and at <= now_us and call('ZRANK', job.waiting, job.id) == 0 and call('EXISTS', hg('leader')) == 0 then
    if not granted then leave_lane(job.id, r) end
    forget_record(job.name, r.expiry)
    remove_if_empty(job.lane)
    return at
  end
  if granted == RESERVED then -- the reserved permits cannot be taken, for example because the key was blocked
    notify_freed(job.lane)
    load_reserved(job.meters)
  end
  return at, wait_in_lane(job, r, granted, bottleneck)
end
