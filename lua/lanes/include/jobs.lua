-- @include lane
-- @include expiry

-- A job is identified by its queue and ID. A lane is the FIFO of a queue's jobs that need the same
-- meters. Its name has a line for the queue, a line for each meter, and for jobs with a fairness key
-- the line |<weight>|<key>. Granted jobs have left the waiting jobs of their lane.

-- Parses a record: one field a line, in the order of the pattern below. The spaces after the expiry
-- are padding: see LONG in waiting.lua. Returns nil if the record is malformed.
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

-- Deletes the record and the wait deadline of a job, by its name.
local function forget_record(job, expiry)
  call('HDEL', hg('jobs'), job)
  if expiry ~= NO_DEADLINE then call('ZREM', hg('deadlines'), job) end
end
