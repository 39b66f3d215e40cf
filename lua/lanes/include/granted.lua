-- @include latest
-- @include lanes
-- @include leaving
-- @include waiting

-- Whether permits are reserved for a granted job, or it came too late for them.
local RESERVED, OVERDUE = 1, 2

-- Has a granted job take what is reserved for it; or, if it came too late for that, what is
-- reserved for the first of its lane that asked for as much, which takes a later one's in turn.
-- Returns nil if the job was not granted, whether it came late, and since when the permits that it
-- takes exist.
local function claim(job, r, until_us)
  local granted = hg('granted', r.lane)
  call('ZREM', granted, job.id)
  local late, from_us = until_us <= 0, until_us - r.grant_us
  if late then
    local others = call('ZRANGEBYSCORE', granted, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 10)
    local other
    for i = #others - 1, 1, -2 do
      local o = read_job(job.queue, others[i])
      local from = o and tonumber(others[i + 1]) - o.grant_us
      if o and o.costs == r.costs and may_have(job, from) then other, from_us = others[i], from end
    end
    if not other then return OVERDUE, true end
    call('ZADD', granted, 0, other)
  end
  count_all(hg('meters'), r, -1)
  return RESERVED, late, from_us
end

-- Has a known job leave its lane if it may take its permits, and returns from when on they exist;
-- else the job waits on, and the reply is returned, too. A granted job takes what there is. A job
-- that was not granted is admitted only if no process leads.
local function go_on(job, r, granted, late)
  if granted ~= RESERVED then load_reserved(job.meters) end
  local bind, at = binding(job.meters)
  if granted then make_room(job.lane, late) end
  local may = granted == RESERVED and may_have(job, at) or granted and at <= now_us
  if may or not granted and at <= now_us and call('ZRANK', job.waiting, job.id) == 0 and call('EXISTS', hg('leader')) == 0 then
    if not granted then step_out(job.id, r) end
    forget_record(job.name, r.expiry)
    leave_if_empty(job.lane)
    return at
  end
  if granted == RESERVED then
    freed(job.lane)
    load_reserved(job.meters)
  end
  return at, wait(job, r, granted, bind)
end
