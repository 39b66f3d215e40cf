-- @include lane
-- @include expiry

-- A job is identified by its queue and ID. A lane holds the waiting jobs of one queue that need the
-- same meters and have the same fairness key, first in, first out. The lane's name has a line for
-- the queue, a line for each meter, and the line |<weight>|<key> if there is a fairness key. A
-- granted job is no longer among the waiting jobs of its lane.

-- Parses a job's record. The pattern below shows its fields, which are separated by newlines; only
-- spaces separate the expiry and the denials. More than one space is padding: see LONG in
-- waiting.lua. Returns nil if the record is malformed.
local function parse_job(record)
  local ticket, since_us, grant_us, expiry, denials, costs, lane =
    string.match(record, '^(%-?%d+)\n(%d+)\n(%d+)\n(%d) *(%d*)\n([%d,]+)\n([^\n]*\n.+)$')
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

-- Deletes the record and the wait deadline of a job. `job` is the job's name: "<queue>\n<ID>".
-- `expiry` is the expiry field of the record.
local function forget_record(job, expiry)
  call('HDEL', hg('jobs'), job)
  if expiry ~= NO_DEADLINE then call('ZREM', hg('deadlines'), job) end
end
