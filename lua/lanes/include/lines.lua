-- @include lane
-- @include expiry
-- @include count
-- @include loaded

-- A line is a lane in one call: how many turns of it are tried, its first waiting jobs, and how
-- many of them were taken. Those leave the lane at the end, all at once.
local lines, by_lane = {}, {}
local wanted = {} -- meter -> permits that those taken had wanted of it
local had = 0 -- turns in which a job was granted

local function line_of(lane)
  local line = by_lane[lane]
  if line then return line end
  local queue, ids = parse_lane(lane)
  line = {
    lane = lane, queue = queue, ids = ids, turns = 0, jobs = {}, records = {}, since = {}, taken = 0, calls = {}, told = 0,
    granted = call('ZCARD', hg('granted', lane)), held = false, held_text = false, before = false, meters = {}, like = false, timely = false, had_us = false,
  }
  lines[#lines + 1], by_lane[lane] = line, line
  return line
end

-- Reads what a turn needs of a job's record: how long permits are reserved for it, whether its wait
-- may end, its costs, and since when it waits. Mostly that is as for the job before it. A record
-- that no script has written, or that is of another lane, counts as none.
local function parse_costs(line, record)
  local since, grant, expiry, costs, lane = string.match(record, '^%-?%d+\n(%d+)\n(%d+)\n(%d) *%d*\n([%d,]+)\n(.*)$')
  if lane ~= line.lane then return false end
  local r = line.like
  if r and r.costs == costs and r.grant == grant and r.expiry == expiry then return r, since end
  r = { grant = grant, expiry = expiry, costs = costs, grant_us = tonumber(grant), cost = {} }
  for cost in string.gmatch(costs, '%d+') do r.cost[#r.cost + 1] = tonumber(cost) end
  if #r.cost ~= #line.ids then return false end
  line.like = r
  return r, since
end

-- Reads as many more of a line's jobs as its turns may need, and reports whether there are any.
local function read_more(line)
  local read = #line.jobs
  local more, names = call('ZRANGE', hg('lane', line.lane), read, read + line.turns), {}
  for i = 1, #more do line.jobs[read + i], names[i] = more[i], line.queue .. '\n' .. more[i] end
  local records = #more > 0 and call('HMGET', hg('jobs'), unpack(names)) or names
  for i = read + 1, read + #more do
    local record = records[i - read]
    if record then line.records[i], line.since[i] = parse_costs(line, record) end
  end
  return #more > 0
end

-- Takes a line's first job out: it wants no permits any more.
local function take_out(line, r)
  line.taken = line.taken + 1
  for i = 1, r and #line.ids or 0 do wanted[line.ids[i]] = (wanted[line.ids[i]] or 0) + r.cost[i] end
end

-- Reports whether a job's wait deadline is over. Such a job gets no turn.
local function is_over(line, id, r)
  if r.expiry == NEVER_ENDS or line.timely == id then return false end
  local ends = call('ZSCORE', hg('deadlines'), line.queue .. '\n' .. id)
  if ends and tonumber(ends) <= now_us then return true end
  line.timely = id
  return false
end

-- Returns the first waiting job of a line, its record and since when it waits. It skips jobs
--   without a record and those whose wait deadline is over.
local function first(line)
  while line.taken < #line.jobs or read_more(line) do
    local id, r = line.jobs[line.taken + 1], line.records[line.taken + 1]
    if r and not is_over(line, id, r) then return id, r, line.since[line.taken + 1] end
    take_out(line, r)
  end
end

-- Returns how many granted jobs of a line are on their way: without those granted in advance, which
--   are not promoted yet, and those given up.
local function on_their_way(line, grant_us)
  line.before = line.before or call('ZCOUNT', hg('granted', line.lane), 0, int(now_us + grant_us))
  return line.before + line.told
end

-- Takes a line's first job out, granted: permits are reserved until a time.
local function granted(line, id, r, at, until_us)
  take_out(line, r)
  line.granted = line.granted + 1
  if at <= now_us then line.told = line.told + 1 end
  line.calls[#line.calls + 1] = int(until_us)
  line.calls[#line.calls + 1] = id
  had = had + 1
  line.had_us = now_us + had -- in the order of the turns
end

-- Writes what the turns have changed.
local function store()
  local turned = {}
  for i = 1, #lines do
    local line = lines[i]
    for k = 1, line.taken, 1000 do call('ZREM', hg('lane', line.lane), unpack(line.jobs, k, math.min(k + 999, line.taken))) end
    if #line.calls > 0 then
      call('ZADD', hg('granted', line.lane), unpack(line.calls))
      turned[#turned + 1], turned[#turned + 2] = line.lane .. TURN, int(line.had_us)
    end
    if line.granted == 0 then
      -- @include empty
      leave_if_empty(line.lane)
    end
  end
  if #turned > 0 then call('HSET', hg('tickets'), unpack(turned)) end
  for id, m in pairs(loaded) do
    if m and m.promised > 0 then count(hg('meters'), id, m.promised) end
  end
  for id, permits in pairs(wanted) do count(hg('demand'), id, -permits) end
end
