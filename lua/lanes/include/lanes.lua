-- @include jobs
-- @include lane
-- @include count
-- @include notify_arrival
-- @include reserved
-- @include change

-- Adds a job's costs to the counters of its meters (sign 1), or subtracts them (sign -1).
local function count_all(counters, r, sign)
  for i = 1, #r.ids do count(counters, r.ids[i], sign * r.cost[i]) end
end

-- Publishes for each of a lane's meters that permits may be free again.
local function notify_freed(lane)
  local _, ids = parse_lane(lane)
  for i = 1, #ids do publish_change('meter', ids[i]) end
end

-- Removes a waiting job from its lane. Returns the job's rank in the lane, from 0, or nil if the
-- job did not wait there. After rank 0, the caller must call notify_freed, because the lane's new
-- first job may get its permits earlier.
local function leave_lane(id, r)
  local rank = call('ZRANK', hg('lane', r.lane), id)
  if not rank then return end
  call('ZREM', hg('lane', r.lane), id)
  count_all(hg('demand'), r, -1)
  return rank
end

-- Removes a waiting or granted job, its reserved permits and its record. Removes the lane if empty.
local function forget_job(queue, id, r)
  local granted = call('ZSCORE', hg('granted', r.lane), id)
  if granted then
    call('ZREM', hg('granted', r.lane), id)
    if (tonumber(granted) or 0) > 0 then
      count_all(hg('meters'), r, -1)
      notify_freed(r.lane)
    end
    notify_arrival(r.lane)
  elseif leave_lane(id, r) == 0 then
    notify_freed(r.lane)
  end
  forget_record(queue .. '\n' .. id, r.expiry)
  remove_if_empty(r.lane)
end
