-- @include expiry

-- Reads the group of jobs that begins at ARGV[i]: see acquire.lua. The returned table is used for
-- all jobs of the group, one after the other: see next_job.
local function read_group(i)
  local job_count, queue, head_start, max_wait_us, grant_us, max_advance_us, queued_at_us, waiting_since_us, waits, fairness_line, need_count =
    unpack(ARGV, i, i + 10)
  local first_need, ids, costs = i + 11, {}, {}
  local first_job = first_need + 3 * need_count
  for arg = first_need, first_job - 1, 3 do
    ids[#ids + 1], costs[#costs + 1] = ARGV[arg] .. '|' .. ARGV[arg + 1], ARGV[arg + 2]
  end
  local lane = queue .. '\n' .. table.concat(ids, '\n') .. fairness_line
  return {
    queue = queue, head_start = tonumber(head_start), rule_max_wait_us = tonumber(max_wait_us), grant_text = grant_us,
    max_advance_us = tonumber(max_advance_us), queued_at_us = tonumber(queued_at_us), waiting_since_us = tonumber(waiting_since_us), waits = tonumber(waits),
    first_need = first_need, first_job = first_job, last_job = first_job + 2 * job_count - 1,
    ids = ids, costs = table.concat(costs, ','), lane = lane, waiting = hg('lane', lane), meters = false,
    -- These fields are set for each job. max_wait_us counts from since_us, the wait's start.
    number = 0, arg = 0, id = false, name = false, useful_us = false, max_wait_us = false, since_us = false, before = false, mark = false, ticket = nil,
    cached_at_us = false, cached_wait = false, cache_line = false, refusal = false, same_rule = false, reserved_until_us = false, reservations = false,
  }
end

-- Returns the groups of a call, which begin at ARGV[i], and the names of all their jobs in order.
local function read_groups(i)
  local groups, names = {}, {}
  while i <= #ARGV do
    local group = read_group(i)
    for arg = group.first_job, group.last_job, 2 do names[#names + 1] = group.queue .. '\n' .. ARGV[arg] end
    groups[#groups + 1], i = group, group.last_job + 1
  end
  return groups, names
end

-- Fills a group's table with its next job. `arg` is the index of the job's ID in ARGV. `number` is
-- the job's number in the call, from 1.
local function next_job(group, arg, name, number)
  group.number, group.arg, group.id, group.name, group.useful_us = number, arg, ARGV[arg], name, tonumber(ARGV[arg + 1])
  group.since_us, group.max_wait_us = now_us, group.rule_max_wait_us
  group.before, group.mark, group.ticket, group.cache_line = false, false, nil, false
end

-- Sets since_us and max_wait_us of a job with an earlier attempt. since_us is the start in the
-- record, or the time at which the earlier attempt was queued. A recorded deadline is kept. Without
-- one, or if it is 0 because Redis lost it, the rule's longest wait counts from waiting_since_us if
-- that is set, else from now. If expire_waits.lua has returned the job because its deadline has passed,
-- max_wait_us is 0.
local function restore_wait(job, record)
  local since_us, expiry = string.match(record or '', '^%-?%d+\n(%d+)\n%d+\n(%d)')
  job.since_us = tonumber(since_us) or math.min(job.queued_at_us, now_us)
  if job.rule_max_wait_us < 0 then return end
  local ends_us = expiry == HAS_DEADLINE and tonumber(call('ZSCORE', hg('deadlines'), job.name) or nil)
  if ends_us == 0 then ends_us = nil end
  local counts_from_us = job.waiting_since_us > 0 and job.waiting_since_us or now_us
  local has_expired = expiry and expiry > HAS_DEADLINE and expiry < LOST_DEADLINE
  job.max_wait_us = has_expired and 0 or (ends_us or counts_from_us + job.rule_max_wait_us) - job.since_us
end
