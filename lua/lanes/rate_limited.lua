-- Has a job wait again that was allowed and that the upstream then rate limited: at the head of its
-- lane, behind those that were allowed before it and came back, too. The meters that this is about
-- are blocked for all jobs. A job that waits by another attempt keeps its place: this call has
-- outlived its timeout.
-- Safe to repeat: the same call again changes nothing.
-- Touches: admitted (rw), blocked (rw), changelog (w), changes (w), contended (rw), deadlines (rw),
--   deleted (r), demand (rw), ending (rw), full (w), granted (rw), jobs (rw), lane (rw),
--   lanes (rw), limit (rw), m (rw), meters (rw), overrides (rw), seq (w), summaries (rw),
--   tickets (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue it goes back to
-- ARGV[2] ID of the job
-- ARGV[3] app that asks
-- ARGV[4] when it had been allowed, in microseconds
-- ARGV[5] how long the upstream wants to be left alone, in microseconds, or -1 if it does not say
-- ARGV[6] chance, 0 to 999999
-- ARGV[7] longest wait in microseconds, or -1 for any
-- ARGV[8] microseconds until it is of no use any more, or -1 for never
-- ARGV[9] how long permits are reserved for it once it is granted, in microseconds
-- ARGV[10] for each need 1 if its meter is to be blocked, or 0
-- ARGV[11] '' or the line in which the name of its lane says a fairness key
-- ARGV[12] caller: a name of who makes one call at a time
-- ARGV[13] number of its call, which only repeats of this very call share
-- ARGV[14…] limit, key, cost for each need, sorted by limit and key
-- Returns what acquire.lua does
-- @include scope
-- @inner
-- @include needs
-- @include waiting
-- @include lanes
-- @include rate_limit
local queue, id, app, at_us, for_us, random = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_wait_us, useful_us, grant_us, block_flags, fairness_line = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
local caller, number = ARGV[12], ARGV[13]

local cached, refusal = unpack(cached_replies(call('GET', hg('admitted', caller)), number)), nil
if type(cached) == 'table' then return cached end
local meters
meters, refusal = load_needs(14, #ARGV, app)
if refusal then return refusal end
if cached then
  load_reserved(meters)
  return denial_without_wait(meters)
end
for i = 14, #ARGV, 3 do
  local need = (i - 14) / 3 + 1
  if string.sub(block_flags, need, need) == '1' then record_rate_limit(ARGV[i], ARGV[i + 1], at_us, for_us, random) end
end

meters = load_needs(14, #ARGV, app) -- as they are now
local ids, costs = {}, {}
for i = 1, #meters do
  ids[i], costs[i] = meters[i].id, int(meters[i].cost)
end
local lane = queue .. '\n' .. table.concat(ids, '\n') .. fairness_line
local ticket = at_us - MAX_INT -- unique: no other call of the job was allowed then
local r = read_job(queue, id)
if r and (r.ticket ~= ticket or r.lane ~= lane) then
  local result = denial_without_wait(meters)
  cache_replies(caller, { number, line_of_reply(result) })
  return result
end
local job = {
  name = queue .. '\n' .. id, queue = queue, id = id, lane = lane, waiting = hg('lane', lane), ids = ids,
  costs = table.concat(costs, ','), meters = meters, since_us = r and r.since_us or now_us, ticket = ticket,
  max_wait_us = max_wait_us, useful_us = useful_us, grant_text = grant_us,
}
if not r then job.mark, job.before = first_contended(ids), call('ZCARD', job.waiting) end

load_reserved(meters)
local result = wait(job, r, not r, (find_bottleneck(meters)))
if result[1] == EXPIRED and r then forget_job(queue, id, r) end
cache_replies(caller, { number, result.wait or line_of_reply(result) })
return result
