-- Takes back what is reserved for called jobs that have not come in time, and
-- says who of a lane is called and has not come. They keep their tickets. Of the
-- meters of one without a record nothing is reserved any more: at worst others
-- that are called there are denied once more.
-- Touches: called (rw), changes (w), demand (w), full (w), jobs (r),
--   lane (r), lanes (rw), meters (w), tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] lanes
-- Returns for each lane {how many of it wait, how many are called, of those up to
--   a thousand that permits are reserved for, and up to a thousand that nothing is
--   reserved for any more}
-- @include lanes

-- Of one lane, at most a hundred at a time.
local function recall(lane)
  local queue, ids = parse_lane(lane)
  local called = hg('called', lane)
  local late = call('ZRANGEBYSCORE', called, '(0', int(now_us), 'LIMIT', 0, 100)
  for i = 1, #late do
    local r = read_job(queue, late[i])
    if r then
      count_all(hg('meters'), r, -1)
      call('ZADD', called, 0, late[i])
    else -- somebody removed it: how much is reserved for it nobody knows
      call('ZREM', called, late[i])
      call('HDEL', hg('meters'), unpack(ids))
    end
  end
  local out = {
    call('ZCARD', hg('lane', lane)), call('ZCARD', called),
    call('ZRANGEBYSCORE', called, '(0', '+inf', 'LIMIT', 0, 1000), call('ZRANGEBYSCORE', called, -1, 0, 'LIMIT', 0, 1000),
  }
  if #late > 0 then freed(lane) end
  leave_if_empty(lane)
  return out
end

local out = {}
for i = 1, #ARGV do out[i] = recall(ARGV[i]) end
return out
