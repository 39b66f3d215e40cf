-- @include scope

-- Jobs that ask alike: ids are their meters, needs is where their needs stand, and they
-- themselves stand from first to last. The same table is each of them in turn: see
-- next_job.
local function read_group(i)
  local queue, n, ids, costs = ARGV[i], tonumber(ARGV[i + 7]), {}, {}
  for k = 1, n do
    local at = i + 6 + 3 * k
    ids[k], costs[k] = ARGV[at] .. '|' .. ARGV[at + 1], ARGV[at + 2]
  end
  local lane, first = queue .. '\n' .. table.concat(ids, '\n') .. ARGV[i + 6], i + 9 + 3 * n
  return {
    queue = queue, head_start = tonumber(ARGV[i + 1]), longest_us = tonumber(ARGV[i + 2]), grant = ARGV[i + 3], ahead_us = tonumber(ARGV[i + 4]),
    stood_us = tonumber(ARGV[i + 5]), needs = i + 9, first = first, last = first + 2 * ARGV[i + 8] - 1,
    ids = ids, costs = table.concat(costs, ','), lane = lane, waiting = hg('lane', lane), meters = false,
    place = 0, id = false, name = false, useful_us = false, max_wait_us = false, since_us = false, before = false, mark = false, ticket = nil,
    admitted = false, remembered = false, refusal = false, same = false, until_us = false,
  }
end

-- All groups of a call, and the names of their jobs.
local function read_groups(i)
  local groups, names = {}, {}
  while i <= #ARGV do
    local group = read_group(i)
    for k = group.first, group.last, 2 do names[#names + 1] = group.queue .. '\n' .. ARGV[k] end
    groups[#groups + 1], i = group, group.last + 1
  end
  return groups, names
end

-- Has a group be the next of its jobs, and of all of a call the one at that place.
local function next_job(group, id, name, useful_us, place)
  group.place, group.id, group.name, group.useful_us = place, id, name, tonumber(useful_us)
  group.since_us, group.max_wait_us = now_us, group.longest_us
  group.before, group.mark, group.ticket, group.remembered = false, false, nil, false
end
