-- @include scope

-- Reads jobs that ask alike: ids are their meters, needs is where their needs stand, and the jobs
-- stand from first to last. The same table is each of the jobs in turn: see next_job.
local function read_group(i)
  local queue, n, ids, costs = ARGV[i], tonumber(ARGV[i + 8]), {}, {}
  for k = 1, n do
    local at = i + 7 + 3 * k
    ids[k], costs[k] = ARGV[at] .. '|' .. ARGV[at + 1], ARGV[at + 2]
  end
  local lane, first = queue .. '\n' .. table.concat(ids, '\n') .. ARGV[i + 7], i + 10 + 3 * n
  return {
    queue = queue, head_start = tonumber(ARGV[i + 1]), longest_us = tonumber(ARGV[i + 2]), grant = ARGV[i + 3], ahead_us = tonumber(ARGV[i + 4]),
    stood_us = tonumber(ARGV[i + 5]), waits_us = tonumber(ARGV[i + 6]), needs = i + 10, first = first, last = first + 2 * ARGV[i + 9] - 1,
    ids = ids, costs = table.concat(costs, ','), lane = lane, waiting = hg('lane', lane), meters = false,
    place = 0, at = 0, id = false, name = false, useful_us = false, max_wait_us = false, since_us = false, before = false, mark = false, ticket = nil,
    admitted = false, wait = false, remembered = false, refusal = false, same = false, until_us = false, untils = false,
  }
end

-- Returns all groups of a call, and the names of their jobs.
local function read_groups(i)
  local groups, names = {}, {}
  while i <= #ARGV do
    local group = read_group(i)
    for k = group.first, group.last, 2 do names[#names + 1] = group.queue .. '\n' .. ARGV[k] end
    groups[#groups + 1], i = group, group.last + 1
  end
  return groups, names
end

-- Makes a group's table the next of its jobs, which stands at k, and at that place of the call.
local function next_job(group, k, name, place)
  group.place, group.at, group.id, group.name, group.useful_us = place, k, ARGV[k], name, tonumber(ARGV[k + 1])
  group.since_us, group.max_wait_us = now_us, group.longest_us
  group.before, group.mark, group.ticket, group.remembered = false, false, nil, false
end

-- A job that has been allowed before keeps its place by when it first came. If its attempt failed
-- its wait counts from its first denial since, and if it has not begun from when it began to wait.
-- If it has been named as expired, it is.
local function stand(job, record)
  local since_us, named = string.match(record or '', '^%-?%d+\n(%d+)\n%d+\n(%d)')
  job.since_us = tonumber(since_us) or math.min(job.stood_us, now_us)
  if job.longest_us < 0 then return end
  local ends_us = named == '1' and tonumber(call('ZSCORE', hg('deadlines'), job.name) or nil)
  job.max_wait_us = named and named > '1' and 0 or (ends_us or (job.waits_us > 0 and job.waits_us or now_us) + job.longest_us) - job.since_us
end
