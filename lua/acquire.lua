-- Takes a job's permits, or puts it in its lane to be called back.
-- Safe to repeat: the same call again gets the same answer, and a job that waits
-- keeps its ticket. A newcomer never overtakes a lane it would join, nor lanes
-- that wait on one of its meters.
-- Touches: admitted (rw), at (rw), blocked (r), deleted (r), demand (w),
--   due (rw), grants (rw), jobs (rw), lane (rw), limbo (w), limit (r), m (rw),
--   q (rw), reserved (rw), seq (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] job
-- ARGV[2] queue it comes from and is called back to
-- ARGV[3] app that asks
-- ARGV[4] caller: a name of who makes one call at a time
-- ARGV[5] number of its call, which only repeats of this very call share
-- ARGV[6] tickets of head start: 0 normal, negative earlier, positive later
-- ARGV[7] longest wait in microseconds, or -1 for any
-- ARGV[8…] limit, key, cost for each need, sorted by limit and key
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us}, where time_us is the shortest lease or 0 if
--   allowed, and if denied how long to put the job back for; {6, names, now_us}
--   where calendars must be extended
-- @include needs
local job, queue, app, caller, number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local head_start, patience_us = tonumber(ARGV[6]), tonumber(ARGV[7])
local admitted = hg('admitted', caller)

local meters, refusal = load_needs(8, app, job)

local waiting = call('EXISTS', hg('jobs')) == 1

-- Takes the permits, unless this very call took them before: its answer got lost.
local function admit()
  return take_all(meters, call('SET', admitted, number, 'PX', '10000', 'GET') == number)
end

-- Where nobody waits only the meters decide. What follows is not even loaded
-- then.
if not waiting then
  if refusal then return refusal end
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

-- @include count

local ids, costs, lane, cost_text = {}, {}, nil, nil
if meters then
  for i = 1, #meters do
    ids[i], costs[i] = meters[i].id, int(meters[i].cost)
  end
  lane, cost_text = table.concat(ids, '\n'), table.concat(costs, ',')
end

-- A called job takes what is kept for it, and lets nobody pass.
local record = waiting and call('HGET', hg('jobs'), job)
local called = false
if meters and record then
  local tail = '\n' .. cost_text .. '\n' .. queue .. '\n' .. lane
  called = string.sub(record, -#tail) == tail and call('ZREM', hg('grants'), job) == 1
end
if called then
  for i = 1, #meters do count(hg('reserved'), ids[i], -meters[i].cost) end
  local _, at = binding(meters)
  if at <= now_us then
    for i = 1, #meters do count(hg('demand'), ids[i], -meters[i].cost) end
    call('HDEL', hg('jobs'), job)
    return admit()
  end
end

-- @include lanes

local r = record and parse_job(record)
local ticket = r and r.ticket
if refusal then
  if r and refusal[1] ~= STALE then forget_job(job, r) end
  return refusal
end
if not r and call('GET', admitted) == number then return take_all(meters, true) end
if r and (r.lane ~= lane or r.cost_text ~= cost_text) then
  -- Its rule changed while it waited: it keeps its ticket, nothing else.
  forget_job(job, r)
  r = nil
end

-- Whom it must let pass: a newcomer everyone who waits, a known job those with
-- an earlier ticket in its lane.
local ahead, in_line, waits_on = 0, false, nil
if not r then
  waits_on = call('HGET', hg('at'), lane)
  in_line = waits_on
  for i = 1, #meters do in_line = in_line or call('EXISTS', hg('q', ids[i])) == 1 end
elseif not called then
  ahead = call('ZCOUNT', hg('lane', lane), '-inf', '(' .. int(ticket))
  in_line = ahead > 0
end

-- Who joins a lane that waits already need not know what is free.
local bind, at
if r or not waits_on then
  if not called then
    expire_grants()
    load_reserved(meters)
  end
  bind, at = binding(meters)
  if at <= now_us and not in_line then
    if r then forget_job(job, r) end
    return admit()
  end
end

-- When it would run if it waited: after the permits of all before it.
local last, expected, guess = bind, at or now_us, false
for i = 1, #meters do
  local m = meters[i]
  local before = m.reserved + ahead * m.cost
  if not r then before = call('HINCRBY', hg('demand'), m.id, costs[i]) - m.cost end
  local ready = m.ready_at(before + m.cost)
  if not last or ready > expected then last, expected = m, ready end
  guess = guess or not m.known
end
local wait_us = expected - now_us
if patience_us >= 0 and wait_us > patience_us then
  if r then
    forget_job(job, r)
  else
    for i = 1, #meters do count(hg('demand'), ids[i], -meters[i].cost) end
  end
  return reply(TOO_LATE, last, expected)
end

ticket = ticket or call('INCR', hg('seq')) + head_start
-- The put-back is for the case that nobody calls the job. To come early would
-- cost a second denial, so it is late on purpose, and forgotten later still.
local put_back_us = math.min(wait_us * 1.5 + 5000000, FAR - now_us)
if guess and put_back_us < 3600000000 then put_back_us = 3600000000 end
local forget_us = now_us + put_back_us + 65000000
call('HSET', hg('jobs'), job, table.concat({ int(ticket), int(forget_us), cost_text, queue, lane }, '\n'))
call('ZADD', hg('lane', lane), int(ticket), job)
if r then
  call('ZREM', hg('limbo'), job)
  waits_on = call('HGET', hg('at'), lane)
end
if not waits_on then
  wait_on(lane, bind.id)
  due(bind.id, at)
elseif r or call('ZRANK', hg('lane', lane), job) == 0 then
  due(waits_on, now_us)
end
if called then
  for i = 1, #meters do due_if_waited_for(ids[i]) end
end
return reply(DENIED, last, expected, ceil(put_back_us))
