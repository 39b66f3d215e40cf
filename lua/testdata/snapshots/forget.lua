-- Forgets waiting or called jobs that will not come; what they leave goes on.
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1…] jobs
-- Returns how many were known
-- What every script starts with: the scope's key prefix and the time.
-- All keys of a call share the scope's hash tag, so they live in one slot.
-- Time is Redis's own, read once, in whole microseconds.
local P = KEYS[1]
local call = redis.call
local floor, ceil = math.floor, math.ceil
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- The only way a number becomes text: tostring would keep 14 digits of 16.
local function int(x) return string.format('%.0f', x) end

-- A meter answers: ready_at(k), the earliest microsecond at which k more permits
-- may be taken (k above the capacity: an estimate for those who wait), left(),
-- and full_at(), when it is as if never used. take(k) takes them. Nothing but
-- take changes it. Where m.guess is true nobody knows when permits come back.
-- Returns nil where the limit does not exist for this app. The file of a kind
-- stands in its branch, where m is the meter, so that no call makes the functions
-- of kinds that it does not use.
local function load_meter(name, key, app, holder)
  local limit = P .. 'limit:' .. name
  local gist = call('HGET', limit, 'gist')
  if not gist then return nil end
  local kind, rate, n, period_us, capacity, rest = string.match(gist, '^(%S+) ((%S+) (%S+)) (%S+)(.*)$')
  local paused
  if rest ~= '' then
    local apps
    apps, paused = unpack(call('HMGET', limit, 'apps', 'paused'))
    if app and apps and (string.find(app, ',', 1, true) or not string.find(',' .. apps .. ',', ',' .. app .. ',', 1, true)) then
      return nil
    end
  end

  local id = name .. '|' .. key
  local m = { -- all its fields at once, so that the table is made in its full size
    id = id, name = name, limit = limit, state = P .. 'm:' .. kind .. ':' .. id, holder = holder,
    n = tonumber(n), period_us = tonumber(period_us), capacity = tonumber(capacity), rate = rate,
    index = 0, cost = 0, others = 0, ready_at = false, take = false, left = false, full_at = false,
  }
  if kind == 'funnel' or kind == 'token_bucket' then
-- A funnel or a token bucket: GCRA with the theoretical arrival time (TAT) kept
-- as whole microseconds plus a fraction in 1/n of one, so that nothing drifts.
-- State: "tat fraction n period_us". n permits per period, at most capacity at
-- once: a permit every period/n, and TAT may run capacity·period/n ahead.

-- The time that k permits stand for: whole microseconds, and n-ths of one.
local function span(k, n, period_us)
  local rest = period_us % n
  local parts = k * rest
  local fraction = parts % n
  return k * ((period_us - rest) / n) + (parts - fraction) / n, fraction
end

-- How many permits a time stands for, the inverse of span, rounded up.
local function owed(us, fraction, n, period_us)
  local parts = us * n + fraction
  if parts < 9007199254740992 then
    local over = parts % period_us
    return (parts - over) / period_us + (over > 0 and 1 or 0)
  end
  local k = floor(parts / period_us) -- near it, where numbers are not exact
  local at, over = span(k, n, period_us)
  while k > 0 and (at > us or (at == us and over >= fraction)) do
    k = k - 1
    at, over = span(k, n, period_us)
  end
  while at < us or (at == us and over < fraction) do
    k = k + 1
    at, over = span(k, n, period_us)
  end
  return k
end

local n, period_us, capacity, rate = m.n, m.period_us, m.capacity, m.rate
local tat, fraction = now_us, 0
local state = call('GET', m.state)
if state then
  local was_tat, was_fraction, was_rate = string.match(state, '^(%d+) (%d+) (.+)$')
  was_tat = tonumber(was_tat)
  if was_tat >= now_us then
    tat, fraction = was_tat, tonumber(was_fraction)
    if was_rate ~= rate then
      -- The rate was changed: what was owed at that moment in permits stays,
      -- rounded up, and leaks at the new rate from then on.
      local was_n, was_period_us = string.match(was_rate, '^(%d+) (%d+)$')
      local since_us = m.limit and tonumber(call('HGET', m.limit, 'since_us')) or now_us
      if since_us > now_us then since_us = now_us end
      local us
      us, fraction = span(owed(tat - since_us, fraction, tonumber(was_n), tonumber(was_period_us)), n, period_us)
      tat = since_us + us
      if tat < now_us then tat, fraction = now_us, 0 end
    end
  end
end

function m.ready_at(k)
  if k == 0 then return now_us end
  local at
  if k <= capacity then
    local us, over = span(capacity - k, n, period_us)
    at = tat - us
    if fraction > over then at = at + 1 end
  else
    local us, over = span(k - capacity, n, period_us)
    at = tat + us + ceil((fraction + over) / n)
  end
  return at > now_us and at or now_us
end

function m.take(k)
  local us, over = span(k, n, period_us)
  tat, fraction = tat + us, fraction + over
  if fraction >= n then tat, fraction = tat + 1, fraction - n end
  local ttl_ms = ceil((tat - now_us) / 1000) + 1000
  call('SET', m.state, string.format('%.0f %.0f ', tat, fraction) .. rate, 'PX', int(ttl_ms))
end

function m.left()
  local left = capacity - owed(tat - now_us, fraction, n, period_us)
  return left > 0 and left or 0
end

function m.full_at()
  return fraction > 0 and tat + 1 or tat
end
  elseif kind == 'sliding_log' then
-- A sliding log: at most n permits in every window of one period, exactly.
-- State: LIST of the times of the last n permits, oldest first. A k-th permit
-- exists once the (n-k+1)-th newest time is a whole period old.
local n, period_us = m.n, m.period_us

local function newest(i)
  local at = call('LINDEX', m.state, -i)
  return at and tonumber(at)
end

function m.ready_at(k)
  if k == 0 then return now_us end
  local within = (k - 1) % n + 1
  local rounds = (k - within) / n
  local at = newest(n - within + 1)
  at = at and at + period_us or now_us
  return (at > now_us and at or now_us) + rounds * period_us
end

function m.take(k)
  local last = newest(1)
  local at = int(last and last > now_us and last or now_us)
  while k > 0 do
    local batch = {}
    for i = 1, math.min(k, 1000) do batch[i] = at end
    call('RPUSH', m.state, unpack(batch))
    k = k - #batch
  end
  call('LTRIM', m.state, -n, -1)
  call('PEXPIRE', m.state, int(ceil((at - now_us + period_us) / 1000) + 1000))
end

-- Times are in order, so the first that still counts is found by halving.
function m.left()
  local length = call('LLEN', m.state)
  local low, high = 0, length
  while low < high do
    local middle = floor((low + high) / 2)
    if tonumber(call('LINDEX', m.state, middle)) + period_us > now_us then high = middle else low = middle + 1 end
  end
  local left = n - (length - low)
  return left > 0 and left or 0
end

function m.full_at()
  local last = newest(1)
  return last and last + period_us > now_us and last + period_us or now_us
end
  elseif kind == 'sliding_window' then
-- A sliding window in bounded memory: the period in 60 parts, each counted
-- whole until its last microsecond has left the window, so never over.
-- State: "width part count part count …", oldest part first.
local n, period_us = m.n, m.period_us
local width = ceil(period_us / 60)
local parts, counts, sum = {}, {}, 0

-- When the last permit that part b may hold has left the window.
local function leaves(b) return (b + 1) * width - 1 + period_us end

local state = call('GET', m.state)
if state then
  local was_width, rest = string.match(state, '^(%d+)(.*)$')
  was_width = tonumber(was_width)
  for part, taken in string.gmatch(rest, '(%d+) (%d+)') do
    local b, count = tonumber(part), tonumber(taken)
    -- The limit was changed: a part goes where its last microsecond lies.
    if was_width ~= width then b = floor(((b + 1) * was_width - 1) / width) end
    if leaves(b) > now_us then
      if parts[#parts] == b then
        counts[#parts] = counts[#parts] + count
      else
        parts[#parts + 1], counts[#counts + 1] = b, count
      end
      sum = sum + count
    end
  end
end
-- A part in the future means that the clock stepped back: a meter's time does
-- not.
local behind = #parts > 0 and parts[#parts] * width or 0
local floor_us = behind > now_us and behind or now_us

function m.ready_at(k)
  if k == 0 then return now_us end
  local within = (k - 1) % n + 1
  local wait = (k - within) / n * period_us
  local missing = within - (n - sum)
  local at = floor_us
  for i = 1, #parts do
    if missing <= 0 then break end
    missing = missing - counts[i]
    at = leaves(parts[i])
  end
  return (at > floor_us and at or floor_us) + wait
end

function m.take(k)
  local b = floor(floor_us / width)
  if parts[#parts] == b then
    counts[#parts] = counts[#parts] + k
  else
    parts[#parts + 1], counts[#counts + 1] = b, k
  end
  sum = sum + k
  local text = { int(width) }
  for i = 1, #parts do text[i + 1] = string.format('%.0f %.0f', parts[i], counts[i]) end
  local ttl_ms = ceil((leaves(b) - now_us) / 1000) + 1000
  call('SET', m.state, table.concat(text, ' '), 'PX', int(ttl_ms))
end

function m.left()
  if behind > now_us or sum >= n then return 0 end
  return n - sum
end

function m.full_at()
  return #parts > 0 and leaves(parts[#parts]) or now_us
end
  elseif kind == 'fixed_window' then
-- A fixed window: at most n permits in each aligned period.
-- State: "start count". Boundaries are multiples of the period, or, where a
-- calendar decides, the list `edges` that Go computed; the choice among them is
-- made here by Redis's clock. A window opens margin_us after its start.
local n, period_us = m.n, m.period_us
local margin_us, offset_us, stored = unpack(call('HMGET', m.limit, 'margin_us', 'offset_us', 'edges'))
local edges, here

if stored then
  edges = {}
  for edge in string.gmatch(stored, '%d+') do edges[#edges + 1] = tonumber(edge) end
end

-- The start of the i-th window after the one that holds `at`.
local function locate(at)
  if not edges then return at - (at - offset_us) % period_us end
  here = 0
  while edges[here + 1] and edges[here + 1] <= at do here = here + 1 end
  if here == 0 or here == #edges then m.stale = true end
  return edges[here] or at
end
local start, count = locate(now_us), 0
local function starts(i)
  if not edges then return start + i * period_us end
  local known = edges[here + i]
  if known then return known end
  return (edges[#edges] or start) + (here + i - #edges) * period_us
end

local state = call('GET', m.state)
if state then
  local was_start, was_count = string.match(state, '^(%d+) (%d+)$')
  was_start = tonumber(was_start)
  -- A stored window in the future means that the clock stepped back: a
  -- meter's time does not.
  if was_start > start then start = locate(was_start) end
  if was_start >= start then count = tonumber(was_count) end
end
local open = start + margin_us
local spare = n > count and n - count or 0

function m.ready_at(k)
  local at = open
  if k == 0 then return now_us end
  if k > spare then at = starts(ceil((k - spare) / n)) + margin_us end
  return at > now_us and at or now_us
end

function m.take(k)
  count = count + k
  spare = n > count and n - count or 0
  local ttl_ms = ceil((starts(1) - now_us) / 1000) + 1000
  call('SET', m.state, string.format('%.0f %.0f', start, count), 'PX', int(ttl_ms))
end

function m.left()
  return open > now_us and 0 or spare
end

function m.full_at()
  return count > 0 and starts(1) or now_us
end
  else
    m.guess = true
-- Concurrency: at most n permits held at once, each a lease that ends unless
-- its holder extends it.
-- State: ZSET of permits: holder, or holder\n2, holder\n3 … for a cost above 1,
-- each with the microsecond its lease ends. The holder's own permits do not
-- count against it, so asking twice is asking once.
local n = m.capacity
m.lease_us = tonumber(call('HGET', m.limit, 'lease_us'))
call('ZREMRANGEBYSCORE', m.state, '-inf', int(now_us))
local live = call('ZCARD', m.state)
if live > 0 and m.holder and call('ZSCORE', m.state, m.holder) then
  live = live - 1
  local i = 2
  while call('ZSCORE', m.state, m.holder .. '\n' .. i) do live, i = live - 1, i + 1 end
end

function m.ready_at(k)
  if k == 0 or live + k <= n then return now_us end
  if live == 0 then return now_us + m.lease_us end
  local i = math.min(live + k - n, live)
  local permit = call('ZRANGE', m.state, i - 1, i - 1, 'WITHSCORES')
  return permit[2] and tonumber(permit[2]) or now_us + m.lease_us
end

function m.take(k)
  local ends = int(now_us + m.lease_us)
  call('ZADD', m.state, ends, m.holder)
  for i = 2, k do call('ZADD', m.state, ends, m.holder .. '\n' .. i) end
  while call('ZREM', m.state, m.holder .. '\n' .. int(k + 1)) == 1 do k = k + 1 end
  live = live + k
  call('PEXPIRE', m.state, int(ceil((m.full_at() - now_us) / 1000) + 1000))
end

function m.left()
  return live < n and n - live or 0
end

function m.full_at()
  local last = call('ZRANGE', m.state, -1, -1, 'WITHSCORES')
  return last[2] and tonumber(last[2]) or now_us
end
  end

  if paused then
    m.guess = true
    m.ready_at = function() return now_us + 60000000 end
    m.left = function() return 0 end
  end
  return m
end

-- Holds the meter shut until its block ends, if an upstream's answer set one.
local function apply_block(m)
  local ends = call('HGET', P .. 'blocked', m.id)
  ends = ends and tonumber(ends)
  if not ends or ends <= now_us then return end
  local ready_at = m.ready_at
  m.ready_at = function(k)
    local at = ready_at(k)
    return at > ends and at or ends
  end
  m.left = function() return 0 end
end

-- The outcomes, as Go's throttle.Outcome numbers them, and one of our own.
local ALLOWED, DENIED, NEVER, NO_LIMIT, TOO_LATE, STALE = 1, 2, 3, 4, 5, 6

-- Loads the meters of a call from the triples limit, key, cost in ARGV. Returns
-- them, or nil and the reply to give: a limit that does not exist, a cost that
-- can never fit, or a calendar that Go must extend first.
local function load_needs(first, app, holder)
  local meters, stale = {}, {}
  for i = first, #ARGV, 3 do
    local m = load_meter(ARGV[i], ARGV[i + 1], app, holder)
    local index = (i - first) / 3
    if not m then return nil, { NO_LIMIT, index, now_us } end
    m.index, m.cost, m.others = index, tonumber(ARGV[i + 2]), 0
    if m.cost > m.capacity then
      if m.stale then return nil, { STALE, m.name, now_us } end
      apply_block(m)
      return nil, { NEVER, index, now_us, 0, m.left(), m.full_at(), m.capacity }
    end
    if m.stale then stale[#stale + 1] = m.name end
    meters[#meters + 1] = m
  end
  if #stale > 0 then return nil, { STALE, table.concat(stale, ' '), now_us } end
  return meters
end

-- Of all meters the one to wait longest for, and until when. `current` wins
-- where several are equal.
local function binding(meters, current)
  local bind, at = nil, -1
  for i = 1, #meters do
    local m = meters[i]
    local ready = m.ready_at(m.others + m.cost)
    if ready > at or (ready == at and m.id == current) then bind, at = m, ready end
  end
  return bind, at
end

-- The reply for an outcome that meter m decided, with `at` the time to come back.
local function reply(outcome, m, at, time_us, left)
  left = left or m.left() - m.others
  return { outcome, m.index, now_us, at, left > 0 and left or 0, m.full_at(), m.capacity, time_us or 0 }
end

-- Takes the permits of all meters, unless they were taken before, and replies
-- with the one that has least left.
local function take_all(meters, before)
  local tightest, least, lease_us
  for i = 1, #meters do
    local m = meters[i]
    if m.cost > 0 and not before then m.take(m.cost) end
    local left = m.left() - m.others
    if not least or left < least then tightest, least = m, left end
    if m.lease_us and m.cost > 0 and (not lease_us or m.lease_us < lease_us) then lease_us = m.lease_us end
  end
  return reply(ALLOWED, tightest, now_us, lease_us, least)
end

-- Adds to a counter in a hash, which at zero leaves nothing behind.
local function count(counters, id, change)
  local n = call('HINCRBY', counters, id, int(change))
  if n <= 0 then call('HDEL', counters, id) end
end

-- Waiting jobs. A lane is the FIFO of jobs that need the same meters; its id is
-- those meters' ids, one a line. A job's record, one field a line: ticket, when
-- to forget it, its costs, its queue, its lane.
local function parse_job(record)
  local ticket, forget_us, costs, queue, lane = string.match(record, '^(%-?%d+)\n(%d+)\n([%d,]+)\n([^\n]*)\n(.*)$')
  local r = { ticket = tonumber(ticket), forget_us = forget_us, cost_text = costs, queue = queue, lane = lane, ids = {}, costs = {} }
  for id in string.gmatch(lane, '[^\n]+') do r.ids[#r.ids + 1] = id end
  for cost in string.gmatch(costs, '%d+') do r.costs[#r.costs + 1] = tonumber(cost) end
  return r
end

local function read_job(job)
  local record = call('HGET', P .. 'jobs', job)
  return record and parse_job(record)
end

-- Has the pump look at a meter no later than `at`, and tells it how long that is
-- if it is before everything else it would look at.
local function due(id, at)
  if call('ZADD', P .. 'due', 'LT', 'CH', int(at), id) == 1 and call('ZRANGE', P .. 'due', 0, 0)[1] == id then
    call('PUBLISH', P .. 'wake', int(at - now_us))
  end
end

local function due_if_waited_for(id)
  if call('EXISTS', P .. 'q:' .. id) == 1 then due(id, now_us) end
end

local function wait_on(lane, id)
  call('HSET', P .. 'at', lane, id)
  call('ZADD', P .. 'q:' .. id, int(call('INCR', P .. 'seq')), lane)
end

local function stop_waiting(lane)
  local id = call('HGET', P .. 'at', lane)
  if id then
    call('ZREM', P .. 'q:' .. id, lane)
    call('HDEL', P .. 'at', lane)
  end
end

-- Takes a called job's grant back. What it leaves goes to the next.
local function drop_grant(job, r)
  if call('ZREM', P .. 'grants', job) == 0 then return false end
  for i = 1, #r.ids do count(P .. 'granted', r.ids[i], -r.costs[i]) end
  return true
end

-- A called job that has not come in time loses its grant, not its ticket. The
-- pump calls it once more, in case it was never told, and forgets it when its
-- put-back would have brought it anyway: limbo holds that time, or 0 at first.
local function expire_grants()
  local late = call('ZRANGEBYSCORE', P .. 'grants', '-inf', int(now_us), 'LIMIT', 0, 100)
  for i = 1, #late do
    local r = read_job(late[i])
    if r then
      drop_grant(late[i], r)
      call('ZADD', P .. 'limbo', 0, late[i])
      for j = 1, #r.ids do due_if_waited_for(r.ids[j]) end
    else
      call('ZREM', P .. 'grants', late[i])
    end
  end
end

-- Forgets a job wherever it stands: in its lane, called back, or overdue.
local function forget_job(job, r)
  local lane = P .. 'lane:' .. r.lane
  if drop_grant(job, r) then
    for i = 1, #r.ids do due_if_waited_for(r.ids[i]) end
  elseif call('ZREM', lane, job) == 1 then
    local id = call('HGET', P .. 'at', r.lane)
    if id then due(id, now_us) end
    if call('EXISTS', lane) == 0 then stop_waiting(r.lane) end
  else
    call('ZREM', P .. 'limbo', job)
  end
  call('HDEL', P .. 'jobs', job)
  for i = 1, #r.ids do count(P .. 'demand', r.ids[i], -r.costs[i]) end
end

-- Has every meter count the permits that are kept for called jobs.
local function load_others(meters)
  for i = 1, #meters do meters[i].others = tonumber(call('HGET', P .. 'granted', meters[i].id) or 0) end
end
local known = 0
for i = 1, #ARGV do
  local r = read_job(ARGV[i])
  if r then
    forget_job(ARGV[i], r)
    known = known + 1
  end
end
return known
