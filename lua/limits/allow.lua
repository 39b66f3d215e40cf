-- Decides calls of Allow, in order. A call takes all of its permits or none. Jobs come first: a
-- call never takes permits that are reserved for granted jobs. At a contended meter, a call also
-- leaves the permits that waiting jobs need.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app: name of the calling program
-- ARGV[2…] for each call:
--   holder            holder of the call's leases on concurrency limits
--   need_count        number of needs
--   limit, key, cost  of each need; cost 0 takes nothing
-- Returns a list for each call. Its first value is a throttle.Outcome as a number:
--   allowed             the list that take_all returns, see take.lua
--   denied, impossible  the list that reply returns, see needs.lua
--   no limit            {4, index of the need from 0, now_us, 1 if Redis lost the limit, 2 if the
--                       limit is for other apps, 0 if the limit was deleted}
--   stale calendar      {6, names of the limits whose calendars Go must extend, now_us}
-- @include scope
-- @inner
-- @include take
-- @include reserved
local app = ARGV[1]
local no_waiting = call('EXISTS', hg('jobs')) == 0 -- no job waits for permits
local loaded = {} -- meter ID -> meter

-- Loads into m.reserved the permits that are reserved for granted jobs. For a contended meter it
-- adds the permits that waiting jobs need, so that a call cannot take them.
local function reserve_demand(meters)
  load_reserved(meters)
  local ids = {}
  for i = 1, #meters do ids[i] = meters[i].id end
  local marks = call('HMGET', hg('contended'), unpack(ids))
  for i = 1, #meters do
    local m = meters[i]
    if marks[i] then m.reserved = m.reserved + parse_counter(call('HGET', hg('demand'), m.id)) end
  end
end

local function allow(holder, first, last)
  local meters, refusal = load_needs(first, last, app, holder, loaded)
  if not meters then return refusal end
  if not no_waiting then reserve_demand(meters) end
  local bottleneck, at = find_bottleneck(meters)
  if bottleneck.cost == 0 then at = bottleneck.ready_at(0) end -- needs no free permit
  if at > now_us then return reply(DENIED, bottleneck, at) end
  return take_all(meters)
end

local replies, i = {}, 2
while i < #ARGV do
  local last = i + 1 + 3 * ARGV[i + 1]
  replies[#replies + 1] = allow(ARGV[i], i + 2, last)
  i = last + 1
end
store_taken(loaded)
return replies
