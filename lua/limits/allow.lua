-- Takes the permits of all limits that a call names in one step, or none of them. Several calls run
-- one after the other. For callers outside a queue: it leaves to jobs what is reserved for granted
-- ones, and at a meter for which a lane waits everything that is wanted there. A denial changes
-- nothing.
-- Touches: blocked (r), contended (r), deleted (r), demand (r), jobs (r), limit (r),
--   m (rw), meters (r), overrides (r), summaries (r).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] app that asks
-- ARGV[2…] for each call: holder of its leases on concurrency limits; how many needs; limit,
--   key, cost for each need; cost 0 looks without taking
-- Returns for each call {outcome, index of the deciding need, now_us, ready_at_us, left,
--   full_at_us, capacity, shortest lease in microseconds or 0}; {4, index, now_us,
--   1 if Redis lost the limit}; {6, names, now_us} where calendars must be extended
-- @include scope
-- @inner
-- @include take
-- @include reserved
local app = ARGV[1]
local quiet = call('EXISTS', hg('jobs')) == 0 -- no job waits: only the meters decide
local loaded = {} -- meters

-- Reserves what waiting jobs want of the meters.
local function keep_wanted(meters)
  load_reserved(meters)
  local ids = {}
  for i = 1, #meters do ids[i] = meters[i].id end
  local marks = call('HMGET', hg('contended'), unpack(ids))
  for i = 1, #meters do
    local m = meters[i]
    if marks[i] then m.reserved = m.reserved + counted(call('HGET', hg('demand'), m.id)) end
  end
end

local function allow(holder, first, last)
  local meters, refusal = load_needs(first, last, app, holder, loaded)
  if not meters then return refusal end
  if not quiet then keep_wanted(meters) end
  local bind, at = binding(meters)
  if bind.cost == 0 then at = bind.ready_at(0) end -- a look takes nothing
  if at > now_us then return reply(DENIED, bind, at) end
  return take_all(meters)
end

local answers, i = {}, 2
while i < #ARGV do
  local last = i + 1 + 3 * ARGV[i + 1]
  answers[#answers + 1] = allow(ARGV[i], i + 2, last)
  i = last + 1
end
store_taken(loaded)
return answers
