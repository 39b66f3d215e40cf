-- @include lane
-- @include expiry
-- @include count
-- @include cached_meters

-- The lanes of this call: the number of turns, the first waiting jobs, and how many of these were
-- removed. The changes are written at the end, by store.
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

-- Parses the fields of a record that a turn needs. If the previous job's record has the same
-- fields, it returns the same table. Returns false if the record is malformed or belongs to another
-- lane.
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

-- Reads as many more jobs of a lane as its turns may need, and reports whether there are any.
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

-- Removes the first waiting job of a lane. Its costs leave the demand at the end, in store.
local function remove_first(lane, r)
  lane.removed = lane.removed + 1
  for i = 1, r and #lane.ids or 0 do removed_demand[lane.ids[i]] = (removed_demand[lane.ids[i]] or 0) + r.cost[i] end
end

-- Reports whether a job's wait deadline has passed. Such a job gets no turn.
local function has_expired(lane, id, r)
  if r.expiry == NO_DEADLINE or lane.checked_id == id then return false end
  local ends = call('ZSCORE', hg('deadlines'), lane.queue .. '\n' .. id)
  if ends and tonumber(ends) <= now_us then return true end
  lane.checked_id = id
  return false
end

-- Returns the first waiting job of a lane, the fields of its record, and the start of its wait. It
-- removes jobs without a record, and those that have expired.
local function first_waiting(lane)
  while lane.removed < #lane.jobs or read_more(lane) do
    local id, r = lane.jobs[lane.removed + 1], lane.records[lane.removed + 1]
    if r and not has_expired(lane, id, r) then return id, r, lane.since[lane.removed + 1] end
    remove_first(lane, r)
  end
end

-- Returns the number of granted jobs of a lane that were promoted and have not acquired permits.
-- Granted jobs whose permits do not exist yet, and those of expire_active.lua, do not count.
local function promoted_count(lane, grant_us)
  lane.promoted_before = lane.promoted_before or call('ZCOUNT', hg('granted', lane.name), 0, int(now_us + grant_us))
  return lane.promoted_before + lane.promoted_now
end

-- Grants the first waiting job of a lane: permits are reserved from `at` until until_us.
local function grant_first(lane, id, r, at, until_us)
  remove_first(lane, r)
  lane.granted = lane.granted + 1
  if at <= now_us then lane.promoted_now = lane.promoted_now + 1 end
  lane.grants[#lane.grants + 1] = int(until_us)
  lane.grants[#lane.grants + 1] = id
  granted_turns = granted_turns + 1
  lane.turn_us = now_us + granted_turns -- in the order of the turns
end

-- Writes what the turns have changed.
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
