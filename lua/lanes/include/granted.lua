-- @include wait_deadline
-- @include lanes
-- @include notify_arrival
-- @include waiting

-- States of a granted job that arrives: it has reserved permits, or its reservation has expired.
local RESERVED, OVERDUE = 1, 2

-- Assigns reserved permits to a granted job. If the job's own reservation has expired, it takes
-- over the reservation of the first granted job of its lane with the same costs, and that other job
-- becomes overdue. Returns the state, whether the job is late, and the time at which the permits
-- were reserved.
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

-- Decides whether a job with a record may take its permits now. If so, it removes the job from its
-- lane, and returns the time from which the permits exist, which may be slightly in the future.
-- Otherwise it returns the time at which the meters are ready, and the denial. An overdue job may
-- take permits that are free now. If there is no leader, so may the first job of a lane.
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
  if granted == RESERVED then -- a meter is not ready after all, for example because it was blocked
    notify_freed(job.lane)
    load_reserved(job.meters)
  end
  return at, wait_in_lane(job, r, granted, bottleneck)
end
