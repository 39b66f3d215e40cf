-- Moves pending jobs to the head of their queue, in a given order. Granted jobs at the head stay in
-- front of them.
-- KEYS[1] asynq:{queue}:pending
-- ARGV[1] prefix of a job's hash, asynq:{queue}:t:
-- ARGV[2] number of jobs at the head of the queue among which the jobs are
-- ARGV[3] the most jobs at the head of the queue that may be granted
-- ARGV[4…] IDs of the jobs, in the order in which they run. Those that are not there are ignored
-- Returns the number of jobs that were moved
-- @include denied
local pending, prefix, n, most_granted = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])

local call = redis.call
local is_wanted, is_there = {}, {}
for i = 4, #ARGV do is_wanted[ARGV[i]] = true end

-- A damaged hash must not stop this script, because the jobs are in no list meanwhile.
local function is_promoted(id) return redis.pcall('HGET', prefix .. id, 'denied') == PROMOTED end

local order, others = {}, {} -- others: jobs that stay behind the moved ones
for _, id in ipairs(call('RPOP', pending, n) or {}) do
  if #order < most_granted and not next(is_there) and not others[1] and is_promoted(id) then
    order[#order + 1] = id
  elseif is_wanted[id] then
    is_there[id] = true
  else
    others[#others + 1] = id
  end
end
local granted = #order
for i = 4, #ARGV do
  if is_there[ARGV[i]] then order[#order + 1] = ARGV[i] end
end
local moved = #order - granted
for i = 1, #others do order[#order + 1] = others[i] end
for last = #order, 1, -1000 do -- asynq pops from the right, so the first job is the rightmost
  local part = {}
  for i = last, math.max(1, last - 999), -1 do part[#part + 1] = order[i] end
  call('RPUSH', pending, unpack(part))
end
return moved
