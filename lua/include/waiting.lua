-- @include lanes

-- How a called job stands: with permits reserved for it, or too late for them.
local RESERVED, OVERDUE = 1, 2

-- Has a called job take what is reserved for it; or, where it came too late for
-- that, what is reserved by now for the first of its lane that asked for as much.
-- That one takes a later one's in turn. Returns nil where the job was not called, and
-- whether it came late.
local function claim(job, r)
  local called = hg('called', r.lane)
  local until_us = call('ZSCORE', called, job.id)
  if not until_us then return nil end
  call('ZREM', called, job.id)
  local late = tonumber(until_us) <= 0
  if late then
    local others = call('ZRANGEBYSCORE', called, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 10)
    local other
    for i = #others - 1, 1, -2 do
      local o = read_job(job.queue, others[i])
      if o and o.costs == r.costs and tonumber(others[i + 1]) - o.grant_us <= now_us then other = others[i] end
    end
    if not other then return OVERDUE, true end
    call('ZADD', called, 0, other)
  end
  count_all(hg('reserved'), r, -1)
  return RESERVED, late
end

-- The first of the job's meters at which a lane waits, or nil.
local function contended(job)
  local marks = call('HMGET', hg('contended'), unpack(job.ids))
  for i = 1, #marks do
    if marks[i] then return job.ids[i] end
  end
end

-- Whether it is a job's turn to take what there is: of a called job always, of
-- one that nobody knows if nobody waits before it. A job that waits and was not
-- called is let by only where nobody gives turns.
local function may_take(job, r, called)
  if called then return true end
  if r then return call('ZRANK', job.waiting, job.id) == 0 and call('EXISTS', hg('turns')) == 0 end
  return not job.mark and job.before == 0
end

-- Forgets a job that runs now.
local function leave(job, r, called, late)
  if called then make_room(r.lane, late) else call('ZREM', job.waiting, job.id) end
  forget_record(job.name, r)
end

-- When a job would run that so many of its lane are before. Lanes take turns, so
-- as many of every other lane go before it, but no more than wait. Returns the
-- meter that decides, its time, and whether that is known.
local function expect(job, place, joins)
  local last, expected, known
  for i = 1, #job.meters do
    local m = job.meters[i]
    local lanes = tonumber(call('HGET', hg('sharing'), m.id) or 1)
    local turns = place * lanes + (joins and job.mark == m.id and lanes or 0)
    local all = tonumber(call('HGET', hg('demand'), m.id) or 0) - (joins and 0 or m.cost)
    local at = m.ready_at(m.reserved + math.max(0, math.min(turns * m.cost, all)) + m.cost)
    if not last or at > expected or (at == expected and m.id == job.mark) then last, expected, known = m, at, m.known end
  end
  return last, expected, known or expected <= now_us
end

-- For how long a denied job is put back, in case that nobody calls it. To come
-- early would cost it a second denial, so that is a little longer than it is told
-- to wait. Where nobody knows, it is a minute, and then as long as it has waited.
local function put_back_us(job, expected, known)
  local us = expected - now_us
  if known then return us + floor(us / 10) + 5000000 end
  return math.min(math.max(now_us - job.since_us, 60000000), 3600000000)
end

-- The last moment at which a job may still run.
local function latest_us(job)
  local latest = job.max_wait_us >= 0 and job.since_us + job.max_wait_us or math.huge
  return job.useful_us >= 0 and math.min(latest, now_us + job.useful_us) or latest
end

-- Has a denied job wait in its lane, unless that would take longer than it may.
local function wait(job, r, called, late, bind)
  if called then make_room(r.lane, late) end
  if called == RESERVED then freed(r.lane) end
  local ticket = r and r.ticket or job.ticket or call('HINCRBY', hg('tickets'), job.lane, 1) + job.head_start
  local place = not r and job.head_start == 0 and job.before or call('ZCOUNT', job.waiting, '-inf', '(' .. int(ticket))
  local last, expected, known = expect(job, place, not r)
  local latest = latest_us(job)
  if now_us >= latest or (known and expected > latest) then
    if not called then call('ZREM', job.waiting, job.id) end
    if r then forget_record(job.name, r) else leave_if_empty(job.lane) end
    return reply(TOO_LATE, last, expected)
  end
  local patience = latest < math.huge and '1' or '0'
  if patience == '1' then call('ZADD', hg('patience'), int(latest), job.name) end
  if not r then
    r = { lane = job.lane, costs = job.costs, cost = job.cost }
    count_all(hg('demand'), r, 1)
  end
  call('HSET', hg('jobs'), job.name, job_record(ticket, job.since_us, job.grant_us, patience, r.costs, r.lane))
  if called or not r.ticket then join(r.lane, job.id, ticket, job.mark or bind.id, job.before) end
  local back_us = put_back_us(job, expected, known)
  local answer = reply(DENIED, last, known and expected or now_us + back_us, back_us)
  answer[9] = known and 1 or 0
  return answer
end
