-- @include needs
-- @include count

-- Waiting jobs. A lane is the FIFO of jobs that need the same meters; its id is
-- those meters' ids, one a line. A job's record, one field a line: ticket, when
-- to forget it, its costs, its queue, its lane.
local function parse_job(record)
  local ticket, forget_us, costs, queue, lane = string.match(record, '^(%-?%d+)\n(%d+)\n([%d,]+)\n([^\n]*)\n(.*)$')
  local r = { ticket = tonumber(ticket), forget_us = forget_us, cost_text = costs, queue = queue, lane = lane, ids = {}, costs = {} }
  for id in string.gmatch(lane, '[^\n]+') do r.ids[#r.ids + 1] = id end
  for cost in string.gmatch(costs, '%d+') do r.costs[#r.costs + 1] = tonumber(cost) end
  return r
end

local function read_job(job)
  local record = call('HGET', hg('jobs'), job)
  return record and parse_job(record)
end

-- Has the pump look at a meter no later than `at`, and tells it how long that is
-- if it is before everything else it would look at.
local function due(id, at)
  if call('ZADD', hg('due'), 'LT', 'CH', int(at), id) == 1 and call('ZRANGE', hg('due'), 0, 0)[1] == id then
    call('PUBLISH', hg('wake'), int(at - now_us))
  end
end

local function due_if_waited_for(id)
  if call('EXISTS', hg('q', id)) == 1 then due(id, now_us) end
end

local function wait_on(lane, id)
  call('HSET', hg('at'), lane, id)
  call('ZADD', hg('q', id), int(call('INCR', hg('seq'))), lane)
end

local function stop_waiting(lane)
  local id = call('HGET', hg('at'), lane)
  if id then
    call('ZREM', hg('q', id), lane)
    call('HDEL', hg('at'), lane)
  end
end

-- Takes a called job's grant back. What it leaves goes to the next.
local function drop_grant(job, r)
  if call('ZREM', hg('grants'), job) == 0 then return false end
  for i = 1, #r.ids do count(hg('reserved'), r.ids[i], -r.costs[i]) end
  return true
end

-- A called job that has not come in time loses its grant, not its ticket. The
-- pump calls it once more, in case it was never told, and forgets it when its
-- put-back would have brought it anyway: limbo holds that time, or 0 at first.
local function expire_grants()
  local late = call('ZRANGEBYSCORE', hg('grants'), '-inf', int(now_us), 'LIMIT', 0, 100)
  for i = 1, #late do
    local r = read_job(late[i])
    if r then
      drop_grant(late[i], r)
      call('ZADD', hg('limbo'), 0, late[i])
      for j = 1, #r.ids do due_if_waited_for(r.ids[j]) end
    else
      call('ZREM', hg('grants'), late[i])
    end
  end
end

-- Forgets a job wherever it stands: in its lane, called back, or overdue.
local function forget_job(job, r)
  local lane = hg('lane', r.lane)
  if drop_grant(job, r) then
    for i = 1, #r.ids do due_if_waited_for(r.ids[i]) end
  elseif call('ZREM', lane, job) == 1 then
    local id = call('HGET', hg('at'), r.lane)
    if id then due(id, now_us) end
    if call('EXISTS', lane) == 0 then stop_waiting(r.lane) end
  else
    call('ZREM', hg('limbo'), job)
  end
  call('HDEL', hg('jobs'), job)
  for i = 1, #r.ids do count(hg('demand'), r.ids[i], -r.costs[i]) end
end
