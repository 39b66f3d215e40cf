-- Blocks the flagged meters of an allowed job that the upstream has rate limited, and lets the job wait
-- again. Another job of its lane tries next. If one was served since the job was refused before, the
-- job is refused for a reason of its own: it goes to the end of its lane, or fails. Several rate-limited
-- jobs wait at the head of their lane, in the order in which they were allowed. If another
-- attempt of the job waits already, that attempt keeps its place in the lane: the calling attempt
-- has outlived its timeout.
-- Safe to repeat: a repeat of the same call changes nothing, and nor does a sending that arrives after
-- a later call of its caller.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] queue of the job
-- ARGV[2] ID of the job
-- ARGV[3] app: name of the calling program
-- ARGV[4] time at which the job was allowed, Unix microseconds
-- ARGV[5] Retry-After, microseconds; -1 if the upstream gave none
-- ARGV[6] random number from 0 to 999999, for jitter
-- ARGV[7] longest wait of the job, microseconds; -1 unlimited
-- ARGV[8] time until the job's deadline, microseconds; -1 if the job has none
-- ARGV[9] time for which permits are reserved for a granted job, microseconds
-- ARGV[10] a digit for each need: 1 if its meter must be blocked, else 0
-- ARGV[11] line of the lane's name with the fairness key; '' for a job without a fairness key
-- ARGV[12] caller: ID of a caller that makes one call at a time
-- ARGV[13] number of the call; a caller's numbers grow, and only repeats of the call have the same
--   number
-- ARGV[14] 0 if the job was not refused right before, 1 if it was, 2 if then for a reason of its own
-- ARGV[15] time of that refusal, Unix microseconds
-- ARGV[16] 1 if the job fails if it is refused for a reason of its own; else 0
-- ARGV[17…] limit, key, cost of each need, sorted by limit and key
-- Returns the reply of acquire.lua for the job. If the job waits, except in a repeat, one more number
-- follows: the end of the latest block of the flagged meters, Unix microseconds. If the job is refused
-- for a reason of its own, a 1 follows that number, or a 2 if the job fails and does not wait
-- @include scope
-- @inner
-- @include needs
-- @include waiting
-- @include lanes
-- @include rate_limit
-- @include refusal
local queue, id, app, at_us, for_us, random = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local max_wait_us, useful_us, grant_us, block_flags, fairness_line = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
local caller, number, before, refused_us, may_fail = ARGV[12], ARGV[13], ARGV[14], tonumber(ARGV[15]), ARGV[16] == '1'

local cache = call('GET', hg('admitted', caller))
if is_overtaken(cache, number) then return redis.error_reply(OVERTAKEN) end
local cached = cached_replies(cache, number)[1]
if type(cached) == 'table' then return cached end
local meters, refusal = load_needs(17, #ARGV, app)
if refusal then
  cache_replies(caller, { number })
  return refusal
end
if cached then
  load_reserved(meters)
  return denial_without_wait(meters)
end
local blocked_until, is_own, is_one_of_many, flagged = now_us, before == '2', false, {}
for i = 17, #ARGV, 3 do
  local need = (i - 17) / 3 + 1
  if string.sub(block_flags, need, need) == '1' then
    record_rate_limit(ARGV[i], ARGV[i + 1], at_us, for_us, random)
    flagged[#flagged + 1] = ARGV[i] .. '|' .. ARGV[i + 1]
    is_own = is_own or before ~= '0' and served_us(flagged[#flagged]) > refused_us
    blocked_until = math.max(blocked_until, tonumber(call('ZSCORE', hg('blocked', ARGV[i]), ARGV[i + 1]) or nil) or 0)
  end
end
for i = 1, is_own and 0 or #flagged do
  if note_refused(flagged[i], queue .. '\n' .. id, blocked_until) then is_one_of_many = true end
end

meters = load_needs(17, #ARGV, app) -- loaded again, because some meters are blocked now
local ids, costs = {}, {}
for i = 1, #meters do
  ids[i], costs[i] = meters[i].id, int(meters[i].cost)
end
local lane = queue .. '\n' .. table.concat(ids, '\n') .. fairness_line
local ticket = at_us + (is_one_of_many and HEAD or TAIL)
local r = read_job(queue, id)
if r and (r.ticket ~= ticket or r.lane ~= lane) then
  local result = denial_without_wait(meters)
  cache_replies(caller, { number, line_of_reply(result) })
  return result
end
if is_own or is_one_of_many then let_another_try(lane, queue) end
if is_own and may_fail then
  load_reserved(meters)
  local result = denial_without_wait(meters)
  result[10], result[11] = blocked_until, 2
  cache_replies(caller, { number, line_of_reply(result) })
  return result
end
local job = {
  name = queue .. '\n' .. id, queue = queue, id = id, lane = lane, waiting = hg('lane', lane), ids = ids,
  costs = table.concat(costs, ','), meters = meters, since_us = r and r.since_us or now_us, ticket = ticket,
  max_wait_us = max_wait_us, useful_us = useful_us, grant_text = grant_us, head_start = 0,
}
if is_own then job.ticket = last_ticket(lane) end
if not r then job.mark, job.before = first_contended(ids), call('ZCARD', job.waiting) end

load_reserved(meters)
local result = wait_in_lane(job, r, not r, (find_bottleneck(meters)))
if result[1] == EXPIRED and r then forget_job(queue, id, r) end
cache_replies(caller, { number, result.wait or line_of_reply(result) })
if result[1] ~= DENIED then return result end
result[10], result[11] = blocked_until, is_own and 1 or nil
return result
