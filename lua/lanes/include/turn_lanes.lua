-- @include lane
-- @include expiry
-- @include count
-- @include cached_meters

-- The lanes of this call, as a list and by name. A lane's table holds the number of its turns, the
-- waiting jobs that were read, and how many of these jobs the turns have removed. The function
-- store writes the changes at the end of the call.
local lanes, by_name = {}, {}
local removed_demand = {} -- meter -> demand of the jobs that were removed
local granted_turns = 0 -- turns in which a job was granted

local function lane_of(name)
  local lane = by_name[name]
  if lane then return lane end
  local queue, ids = parse_lane(name)
  lane = {
    name = name, queue = queue, ids = ids, turns = 0, jobs = {}, records = {}, since = {}, removed = 0, grants = {}, promoted_now = 0,
    granted = call('ZCARD', hg('granted', name)), held = false, held_text = false, promoted_before = false, meters = {}, previous = false, checked_id = false, turn_us = false,
  }
  lanes[#lanes + 1], by_name[name] = lane, lane
  return lane
end

-- Parses those fields of a record that a turn needs. Returns a table of the fields, and the start
-- of the job's wait. Consecutive jobs with equal fields share one table. Returns false if the
-- record is malformed or names another lane.
local function parse_turn_fields(lane, record)
  local since, grant, expiry, costs, name = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) *%d*\n([%d,]+)\n(.*)$')
  if name ~= lane.name then return false end
  local r = lane.previous
  if r and r.costs == costs and r.grant == grant and r.expiry == expiry then return r, since end
  r = { grant = grant, expiry = expiry, costs = costs, grant_us = tonumber(grant), cost = {} }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  if #r.cost ~= #lane.ids then return false end
  lane.previous = r
  return r, since
end

-- Reads the waiting jobs of a lane that follow those already read: one more than the lane has turns
-- in this call. Reports whether any job was read.
local function read_more(lane)
  local read = #lane.jobs
  local more, names = call('ZRANGE', hg('lane', lane.name), read, read + lane.turns), {}
  for i = 1, #more do lane.jobs[read + i], names[i] = more[i], lane.queue .. '\n' .. more[i] end
  local records = #more > 0 and call('HMGET', hg('jobs'), unpack(names)) or names
  for i = read + 1, read + #more do
    local record = records[i - read]
    if record then lane.records[i], lane.since[i] = parse_turn_fields(lane, record) end
  end
  return #more > 0
end

-- Removes the first waiting job of a lane. The function store subtracts the job's costs from the
-- demand. `r` is false or nil if the job has no readable record.
local function remove_first(lane, r)
  lane.removed = lane.removed + 1
  for i = 1, r and #lane.ids or 0 do removed_demand[lane.ids[i]] = (removed_demand[lane.ids[i]] or 0) + r.cost[i] end
end

-- Reports whether a job's wait deadline has passed. A job whose deadline has passed gets no turn.
local function has_expired(lane, id, r)
  if r.expiry == NO_DEADLINE or lane.checked_id == id then return false end
  local ends = call('ZSCORE', hg('deadlines'), lane.queue .. '\n' .. id)
  if ends and tonumber(ends) <= now_us then return true end
  lane.checked_id = id
  return false
end

-- Returns the ID of a lane's first waiting job, the fields of its record, and the start of its
-- wait; nothing if no job waits. Removes unreadable and expired jobs that are ahead of that job.
local function first_waiting(lane)
  while lane.removed < #lane.jobs or read_more(lane) do
    local id, r = lane.jobs[lane.removed + 1], lane.records[lane.removed + 1]
    if r and not has_expired(lane, id, r) then return id, r, lane.since[lane.removed + 1] end
    remove_first(lane, r)
  end
end

-- Returns the number of granted jobs of a lane that were promoted and have not acquired permits. A
-- granted job whose permits do not exist yet does not count, nor a job whose grant
-- expire_active.lua has ended.
local function promoted_count(lane, grant_us)
  lane.promoted_before = lane.promoted_before or call('ZCOUNT', hg('granted', lane.name), 0, int(now_us + grant_us))
  return lane.promoted_before + lane.promoted_now
end

-- Grants the first waiting job of a lane. Its permits are reserved from `at` to until_us. If
-- until_us is 0, no permits are reserved.
local function grant_first(lane, id, r, at, until_us)
  remove_first(lane, r)
  lane.granted = lane.granted + 1
  if at <= now_us then lane.promoted_now = lane.promoted_now + 1 end
  lane.grants[#lane.grants + 1] = int(until_us)
  lane.grants[#lane.grants + 1] = id
  granted_turns = granted_turns + 1
  lane.turn_us = now_us + granted_turns -- one microsecond apart, so that the times keep the order of the turns
end

-- Writes the changes of all turns of this call to Redis.
local function store()
  local turned = {}
  for i = 1, #lanes do
    local lane = lanes[i]
    for k = 1, lane.removed, 1000 do call('ZREM', hg('lane', lane.name), unpack(lane.jobs, k, math.min(k + 999, lane.removed))) end
    if #lane.grants > 0 then
      call('ZADD', hg('granted', lane.name), unpack(lane.grants))
      turned[#turned + 1], turned[#turned + 2] = lane.name .. TURN_SUFFIX, int(lane.turn_us)
    end
    if lane.granted == 0 then
      -- @include empty
      remove_if_empty(lane.name)
    end
  end
  if #turned > 0 then call('HSET', hg('tickets'), unpack(turned)) end
  for id, m in pairs(loaded) do
    if m and m.newly_reserved > 0 then count(hg('meters'), id, m.newly_reserved) end
  end
  for id, permits in pairs(removed_demand) do count(hg('demand'), id, -permits) end
end
