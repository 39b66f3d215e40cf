-- @include lane

-- Waiting jobs. A job is its queue and its ID. A lane is the FIFO of a queue's
-- jobs that need the same meters; its name is the queue and those meters, one a
-- line, and where they have a fairness key |<weight>|<key> in the last. A granted job has
-- left its lane's waiting jobs and is on its way.

-- A job's record, one field a line: ticket, since when it waits, how long
-- permits are reserved for it once it is granted, whether its wait may end and, after the
-- spaces that make it long, how often it was denied, its costs, its lane. Nil is a record
-- that no script has written.
local function parse_job(record)
  local ticket, since_us, grant_us, expiry, denials, costs, lane =
    string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n([0-6]) *(%d*)\n([%d,]+)\n([^\n]*\n.+)$')
  if not lane then return nil end
  local r = {
    ticket = tonumber(ticket), since_us = tonumber(since_us), grant_us = tonumber(grant_us), expiry = expiry,
    denials = tonumber(denials) or 1, costs = costs, lane = lane, cost = {}, ids = false,
  }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  local _, ids = parse_lane(lane)
  r.ids = ids
  return #r.cost == #ids and r or nil
end

local function read_job(queue, id)
  local record = call('HGET', hg('jobs'), queue .. '\n' .. id)
  return record and parse_job(record)
end

-- Deletes the record and the wait deadline of a job.
local function forget_record(job, expiry)
  call('HDEL', hg('jobs'), job)
  if expiry ~= '0' then call('ZREM', hg('deadlines'), job) end
end
