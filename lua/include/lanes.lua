-- @include jobs
-- @include reserved
-- @include change
-- @include mark

-- A job's record, as parse_job reads it.
local function job_record(ticket, since_us, grant_us, patience, denials, costs, lane)
  return table.concat({ int(ticket), int(since_us), grant_us, patience .. ' ' .. int(denials), costs, lane }, '\n')
end

-- Tells who gives turns that what was reserved of meters is free again.
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
