-- Takes a job's permits, or puts it in its lane to be called back.
-- Safe to repeat: a second call of the same attempt gets the same answer, and a
-- job that waits keeps its ticket. A newcomer never overtakes a lane it would
-- join, nor lanes that wait on one of its meters.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] job
-- ARGV[2] queue it comes from and is called back to
-- ARGV[3] app that asks
-- ARGV[4] attempt: a text that only repeats of this very call share
-- ARGV[5] tickets of head start: 0 normal, negative earlier, positive later
-- ARGV[6] longest wait in microseconds, or -1 for any
-- ARGV[7…] limit, key, cost for each need, sorted by limit and key
-- Returns {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, time_us}, where time_us is the shortest lease or 0 if
--   allowed, and if denied how long to put the job back for; {6, names, now_us}
--   where calendars must be extended
-- @include needs
local job, queue, app, attempt, head_start, patience_us = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local seen = P .. 'seen:' .. job

local meters, refusal = load_needs(7, app, job)

-- Where nobody waits and nothing is blocked, only the meters decide. What
-- follows is not even loaded then. A job that does not wait but asks in the same
-- attempt was admitted: its answer got lost.
local quiet = call('EXISTS', P .. 'jobs', P .. 'blocked') == 0
if quiet then
  if refusal then return refusal end
  local _, at = binding(meters)
  if call('SET', seen, attempt, 'PX', '10000', 'GET') == attempt then return take_all(meters, true) end
  if at <= now_us then return take_all(meters) end
  call('DEL', seen)
end

-- @include lanes

local r = not quiet and read_job(job)
if refusal then
  if r and refusal[1] ~= STALE then forget_job(job, r) end
  return refusal
end
if not quiet then
  if not r and call('GET', seen) == attempt then return take_all(meters, true) end
  if call('EXISTS', P .. 'blocked') == 1 then
    for i = 1, #meters do apply_block(meters[i]) end
  end
end

local ids, costs = {}, {}
for i = 1, #meters do ids[i], costs[i] = meters[i].id, int(meters[i].cost) end
local lane = table.concat(ids, '\n')
local cost_text = table.concat(costs, ',')
local ticket = r and r.ticket
if r and (r.lane ~= lane or r.cost_text ~= cost_text) then
  -- Its rule changed while it waited: it keeps its ticket, nothing else.
  forget_job(job, r)
  r = nil
end

-- Whom it must let pass: a newcomer everyone who waits, a known job those with
-- an earlier ticket in its lane, a called job nobody.
local ahead, in_line, called, waits_on = 0, false, false, nil
if not r then
  waits_on = call('HGET', P .. 'at', lane)
  in_line = waits_on
  for i = 1, #meters do in_line = in_line or call('EXISTS', P .. 'q:' .. ids[i]) == 1 end
else
  called = drop_grant(job, r)
  if not called then
    ahead = call('ZCOUNT', P .. 'lane:' .. lane, '-inf', '(' .. int(ticket))
    in_line = ahead > 0
  end
end

-- Who joins a lane that waits already need not know what is free.
local bind, at
if r or not waits_on then
  if not called then expire_grants() end
  load_others(meters)
  bind, at = binding(meters)
  if at <= now_us and not in_line then
    if called then
      forget_called(job, r)
    elseif r then
      forget_job(job, r)
    end
    call('SET', seen, attempt, 'PX', '10000')
    return take_all(meters)
  end
end

-- When it would run if it waited: after the permits of all before it.
local last, expected, guess = bind, at or now_us, false
for i = 1, #meters do
  local m = meters[i]
  local before = m.others + ahead * m.cost
  if not r then before = call('HINCRBY', P .. 'demand', m.id, costs[i]) - m.cost end
  local ready = m.ready_at(before + m.cost)
  if not last or ready > expected then last, expected = m, ready end
  guess = guess or m.guess
end
local wait_us = expected - now_us
if patience_us >= 0 and wait_us > patience_us then
  if r then
    forget_job(job, r)
  else
    for i = 1, #meters do count(P .. 'demand', ids[i], -meters[i].cost) end
  end
  return reply(TOO_LATE, last, expected)
end

ticket = ticket or call('INCR', P .. 'seq') + head_start
-- The put-back is for the case that nobody calls the job. To come early would
-- cost a second denial, so it is late on purpose, and forgotten later still.
local put_back_us = wait_us * 1.5 + 5000000
if guess and put_back_us < 3600000000 then put_back_us = 3600000000 end
local forget_us = now_us + put_back_us + 65000000
call('HSET', P .. 'jobs', job, table.concat({ int(ticket), int(forget_us), cost_text, queue, lane }, '\n'))
call('ZADD', P .. 'lane:' .. lane, int(ticket), job)
if r then
  call('ZREM', P .. 'limbo', job)
  waits_on = call('HGET', P .. 'at', lane)
end
if not waits_on then
  wait_on(lane, bind.id)
  due(bind.id, at)
elseif r or call('ZRANK', P .. 'lane:' .. lane, job) == 0 then
  due(waits_on, now_us)
end
if called then
  for i = 1, #meters do due_if_waited_for(ids[i]) end
end
return reply(DENIED, last, expected, ceil(put_back_us))
