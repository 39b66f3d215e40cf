-- @include needs
-- @include count

-- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
-- jobs that need the same meters; its name is the queue and those meters, one a
-- line. A called job has left its lane's waiting jobs and is on its way.

-- A job's record, one field a line: ticket, since when it waits, how long
-- permits are reserved for it once it is called, whether its wait may end and how
-- often it was denied, its costs, its lane.
local function parse_job(record)
  local ticket, since_us, grant_us, patience, denials, costs, lane =
    string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) ?(%d*)\n([%d,]+)\n(.*)$')
  if not lane then return nil end -- nothing that a script has written
  local r = {
    ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), patience = patience,
    denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {},
  }
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
  if not r.ids then r.queue, r.ids = parse_lane(r.lane) end
  for i = 1, #r.ids do count(counters, r.ids[i], sign * r.cost[i]) end
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

-- Forgets all of a job but its place.
local function forget_record(job, r)
  call('HDEL', hg('jobs'), job)
  count_all(hg('demand'), r, -1)
  if r.patience == '1' then call('ZREM', hg('patience'), job) end
  leave_if_empty(r.lane)
end
