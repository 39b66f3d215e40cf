-- @include jobs

-- How a called job stands: with permits reserved for it, or too late for them.
local RESERVED, OVERDUE = 1, 2

-- Has a called job take what is reserved for it; or, where it came too late for
-- that, what is reserved by now for the first of its lane that asked for as much.
-- That one takes a later one's in turn. Returns nil where the job was not called,
-- whether it came late, and since when the permits that it takes exist.
local function claim(queue, id, r)
  local called = hg('called', r.lane)
  local until_us = call('ZSCORE', called, id)
  if not until_us then return nil end
  call('ZREM', called, id)
  local late, from_us = tonumber(until_us) <= 0, tonumber(until_us) - r.grant_us
  if late then
    local others = call('ZRANGEBYSCORE', called, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 10)
    local other
    for i = #others - 1, 1, -2 do
      local o = read_job(queue, others[i])
      local from = o and tonumber(others[i + 1]) - o.grant_us
      if o and o.costs == r.costs and from <= now_us then other, from_us = others[i], from end
    end
    if not other then return OVERDUE, true end
    call('ZADD', called, 0, other)
  end
  count_all(hg('reserved'), r, -1)
  return RESERVED, late, from_us
end

-- Forgets a job that runs now.
local function leave(name, id, r, called, late)
  if called then make_room(r.lane, late) else call('ZREM', hg('lane', r.lane), id) end
  forget_record(name, r)
end
