-- @include needs
-- @include count
-- @include reserved
-- @include change
-- @include mark

-- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
-- jobs that need the same meters; its name is the queue and those meters, one a
-- line. A called job has left its lane's waiting jobs and is on its way.

-- A job's record, one field a line: ticket, since when it waits, how long
-- permits are reserved for it once it is called, whether its wait may end and how
-- often it was denied, its costs, its lane.
local function job_record(ticket, since_us, grant_us, patience, denials, costs, lane)
  return table.concat({ int(ticket), int(since_us), grant_us, patience .. ' ' .. int(denials), costs, lane }, '\n')
end

local function parse_job(record)
  local ticket, since_us, grant_us, patience, denials, costs, lane =
    string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) ?(%d*)\n([%d,]+)\n(.*)$')
  if not lane then return nil end -- nothing that a script has written
  local r = { ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), patience = patience, denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {} }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  return r
end

local function read_job(queue, id)
  local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
  return record and parse_job(record)
end

-- A lane's queue and the ids of its meters.
local function parse_lane(lane)
  local queue, rest = string.match(lane, '^([^\n]*)\n(.*)$')
  local ids = {}
  for id in string.gmatch(rest, '[^\n]+') do ids[#ids + 1] = id end
  return queue, ids
end

-- Counts a job's permits for or against each of its meters.
local function count_all(counters, r, sign)
  local _, ids = parse_lane(r.lane)
  for i = 1, #ids do count(counters, ids[i], sign * r.cost[i]) end
end

-- As many of a lane's jobs may be called at once as its meters can give at once.
local function most_called(meters)
  local most
  for i = 1, #meters do
    local m = meters[i]
    local n = m.cost > 0 and floor(m.capacity / m.cost) or m.capacity
    if not most or n < most then most = n end
  end
  return most
end

-- Forgets a lane of which nothing waits and nobody is called; and with the last
-- one all that a lost record, or a process that died, may have left behind.
local function leave_if_empty(lane)
  if call('EXISTS', hg('lane', lane), hg('called', lane)) > 0 then return end
  call('ZREM', hg('lanes'), lane)
  if call('EXISTS', hg('lanes')) == 1 then
    call('HDEL', hg('tickets'), lane)
    call('SREM', hg('full'), lane)
  else
    call('DEL', hg('tickets'), hg('full'), hg('reserved'), hg('demand'), hg('sharing'), hg('patience'))
  end
end

-- Tells who gives turns that a called job has come, if a turn was refused
-- because too many had not, or if it came late: its queue takes jobs after all.
local function make_room(lane, late)
  if call('SREM', hg('full'), lane) == 1 or late then call('PUBLISH', hg('wake'), 'came ' .. lane) end
end

-- Tells them that what was reserved of meters is free again.
local function freed(lane)
  local _, ids = parse_lane(lane)
  for i = 1, #ids do changed('meter', ids[i]) end
end

-- Puts a job in its lane. The first there is news: the lane gets a number and a
-- meter its mark, so that nobody takes there before the lane had its turn.
local function join(lane, id, ticket, meter, before)
  before = before or call('ZCARD', hg('lane', lane))
  call('ZADD', hg('lane', lane), int(ticket), id)
  if before > 0 then return end
  local number = int(call('INCR', hg('seq')))
  call('ZADD', hg('lanes'), number, lane)
  mark(meter, number)
  call('PUBLISH', hg('wake'), 'lane ' .. number)
end

-- Forgets all of a job but its place.
local function forget_record(job, r)
  call('HDEL', hg('jobs'), job)
  count_all(hg('demand'), r, -1)
  if r.patience == '1' then call('ZREM', hg('patience'), job) end
  leave_if_empty(r.lane)
end

-- Forgets a job wherever it stands: in its lane or called.
local function forget_job(queue, id, r)
  local called = call('ZSCORE', hg('called', r.lane), id)
  if called then
    call('ZREM', hg('called', r.lane), id)
    if tonumber(called) > 0 then
      count_all(hg('reserved'), r, -1)
      freed(r.lane)
    end
    make_room(r.lane)
  else
    call('ZREM', hg('lane', r.lane), id)
  end
  forget_record(queue .. '\n' .. id, r)
end
