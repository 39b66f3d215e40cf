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
--   full_at_us, capacity, shortest lease in microseconds or 0}; {6, names, now_us}
--   where calendars must be extended
-- @include lanes
local job, queue, app, attempt, head_start, patience_us = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local seen = P .. 'seen:' .. job

local meters, refusal = load_needs(7, app, job)
if not meters then
  local r = read_job(job)
  if r and refusal[1] ~= STALE then forget_job(job, r) end
  return refusal
end

local function admit()
  call('SET', seen, attempt, 'PX', '10000')
  return take_all(meters)
end

local waiting = load_others(meters)
if call('GET', seen) == attempt then
  for i = 1, #meters do meters[i].cost = 0 end
  return take_all(meters)
end
if not waiting then
  local _, at = binding(meters)
  if at <= now_us then return admit() end
end

local ids, costs = {}, {}
for i = 1, #meters do ids[i], costs[i] = meters[i].id, int(meters[i].cost) end
local lane = table.concat(ids, '\n')
local r = read_job(job)
local ticket = r and r.ticket
if r and (r.lane ~= lane or table.concat(r.costs, ',') ~= table.concat(costs, ',')) then
  -- Its rule changed while it waited: it keeps its ticket, nothing else.
  forget_job(job, r)
  r = nil
end

-- Whom it must let pass: a newcomer everyone who waits, a known job those with
-- an earlier ticket in its lane, a called job nobody.
local ahead, in_line = 0, false
if not r then
  in_line = call('HEXISTS', AT, lane) == 1
  for i = 1, #meters do in_line = in_line or call('EXISTS', P .. 'q:' .. ids[i]) == 1 end
elseif drop_grant(job, r) then
  for i = 1, #meters do meters[i].others = meters[i].others - meters[i].cost end
else
  ahead = call('ZCOUNT', P .. 'lane:' .. lane, '-inf', '(' .. int(ticket))
  in_line = ahead > 0
end

local bind, at = binding(meters)
if at <= now_us and not in_line then
  if r then forget_job(job, r) end
  return admit()
end

-- When it would run if it waited: after the permits of all before it.
local last, expected = bind, at
for i = 1, #meters do
  local m = meters[i]
  local before = m.others + ahead * m.cost
  if not r then before = tonumber(call('HGET', DEMAND, m.id) or 0) end
  local ready = m.ready_at(before + m.cost)
  if ready > expected then last, expected = m, ready end
end
local wait_us = expected - now_us
if patience_us >= 0 and wait_us > patience_us then
  if r then forget_job(job, r) end
  return reply(TOO_LATE, last, expected)
end

if not r then
  ticket = ticket or call('INCR', P .. 'seq') + head_start
  for i = 1, #meters do call('HINCRBY', DEMAND, ids[i], costs[i]) end
else
  call('ZREM', LIMBO, job)
end
-- Long after its put-back, which is at most 1.5 times the wait and some seconds.
local forget_us = now_us + 2 * wait_us + 70000000
call('HSET', JOBS, job, table.concat({ int(ticket), int(forget_us), table.concat(costs, ','), queue, lane }, '\n'))
call('ZADD', P .. 'lane:' .. lane, int(ticket), job)
local waits_on = call('HGET', AT, lane)
if not waits_on then
  wait_on(lane, bind.id)
  due(bind.id, at)
elseif r then
  due(waits_on, now_us)
  for i = 1, #meters do due_if_waited_for(ids[i]) end
end
return reply(DENIED, last, expected)
