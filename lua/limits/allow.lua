-- Decides calls of Allow, one after the other. A call takes all of its permits in one step, or
-- none. Jobs come first: a call takes no permits that are reserved for granted jobs. If a lane
-- waits at a meter, a call takes no permits that waiting jobs need there. A denial changes nothing.
-- Touches: blocked (r), contended (r), deleted (r), demand (r), jobs (r), limit (r),
--   m (rw), meters (r), overrides (r), summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app of the caller
-- ARGV[2…] for each call: the holder of its leases on concurrency limits; the number of its needs;
--   then limit, key and cost of each need. Cost 0 reads the meter and takes nothing
-- Returns one list for each call. The first value is a throttle.Outcome as a number:
--   allowed: the list of include/take.lua
--   denied, impossible: the list of include/needs.lua
--   no limit (4): {4, index of the need from 0 on, now_us, 1 if Redis lost the limit, else 0 or 2}
--   stale calendar (6), which Go must extend first: {6, names of the limits, now_us}
-- @include scope
-- @inner
-- @include take
-- @include reserved
local app = ARGV[1]
local no_waiting = call('EXISTS', hg('jobs')) == 0 -- no job waits for permits
local loaded = {} -- meters

-- Adds the permits that waiting jobs need to m.reserved, for this call only.
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
  if bottleneck.cost == 0 then at = bottleneck.ready_at(0) end -- cost 0 only reads
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
