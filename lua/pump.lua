-- Calls waiting jobs back, exactly as many as permits exist for, and those whose
-- permit will exist in a moment along with them: each is to come at its time.
-- One process works while its lease lives; it need not live while nothing is due.
-- Bounded: what is left over stays due. A permit is promised, not taken: the
-- called job takes it when it comes.
-- Touches: at (rw), blocked (r), demand (w), due (rw), grants (rw), jobs (rw),
--   lane (rw), limbo (rw), limit (r), m (rw), pump (rw), q (rw), reserved (rw),
--   seq (w), wake (w).
-- KEYS[1] key prefix of the scope, hg:{scope}:
-- ARGV[1] process that pumps
-- ARGV[2] life of its lease in milliseconds
-- ARGV[3] life of a grant in microseconds
-- ARGV[4] how far ahead jobs are called, in microseconds
-- ARGV[5] most steps in this call
-- Returns {1, microseconds until it is worth asking again or -1, names of limits
--   whose calendar must be extended, then queue, job and microseconds until its
--   permits exist for each job called}; {0, microseconds until it is worth asking
--   again} where another process pumps
-- @include lanes
local process, lease_ms, grant_us, ahead_us, steps = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- How long until a meter is due, a grant ends or a job is to be forgotten.
local function next_due_us()
  local first
  for _, times in ipairs({ hg('due'), hg('grants'), hg('limbo') }) do
    local at = tonumber(call('ZRANGE', times, 0, 0, 'WITHSCORES')[2])
    if at and (not first or at < first) then first = at end
  end
  if not first then return -1 end
  return first > now_us and first - now_us or 0
end

local LEASE = hg('pump')
local holder = call('GET', LEASE)
if holder and holder ~= process then
  local lease_us, due_us = call('PTTL', LEASE) * 1000, next_due_us()
  return { 0, due_us >= 0 and due_us < lease_us and lease_us or due_us }
end
call('SET', LEASE, process, 'PX', lease_ms)

-- Where a called job without a grant stands until it comes or is forgotten. One
-- that has waited for longer than was foreseen still has a minute to come.
local function to_limbo(job, r)
  local soon, at = now_us + 60000000, tonumber(r.forget_us)
  call('ZADD', hg('limbo'), int(at > soon and at or soon), job)
end

local out, stale = { 1, 0, '' }, {}
local function tell(job, r, at)
  local i = #out
  out[i + 1], out[i + 2], out[i + 3] = r.queue, job, at - now_us
end

expire_grants()
local overdue = call('ZRANGEBYSCORE', hg('limbo'), '-inf', int(now_us), 'WITHSCORES', 'LIMIT', 0, 100)
for i = 1, #overdue, 2 do
  local job = overdue[i]
  local r = read_job(job)
  if not r then
    call('ZREM', hg('limbo'), job)
  elseif overdue[i + 1] == '0' then
    to_limbo(job, r)
    tell(job, r, now_us)
  else
    forget_job(job, r)
  end
end

-- Meters do not change while the pump works; only the promises on them do.
local known = {}
local function meter(id)
  local m = known[id]
  if m == nil then
    local name, key = string.match(id, '^([^|]*)|(.*)$')
    m = load_meter(name, key) or false
    if m then
      m.reserved = tonumber(call('HGET', hg('reserved'), id) or 0)
      if m.stale then stale[#stale + 1] = name end
    end
    known[id] = m
  end
  return m
end

-- Called jobs leave their lanes at the end, all at once. Until then a lane is
-- its first jobs, of which so many were called. Most lanes have one turn.
local lines = {}
local function first(lane)
  local line = lines[lane]
  if not line then
    line = { called = 0 }
    lines[lane] = line
  end
  if line.called == #line then
    local more = call('ZRANGE', hg('lane', lane), #line, #line * 2)
    for i = 1, #more do line[#line + 1] = more[i] end
  end
  return line[line.called + 1], line
end

-- The lane's first job with its meters, the one that binds it and until when.
-- Nothing where the lane is empty; no meters where a limit is gone.
local function look(lane, current)
  local job = first(lane)
  if not job then return nil end
  local r = read_job(job)
  local meters = {}
  for i = 1, #r.ids do
    local m = meter(r.ids[i])
    if not m or r.costs[i] > m.capacity then return job, r end
    m.cost = r.costs[i]
    meters[i] = m
  end
  local bind, at = binding(meters, current)
  return job, r, meters, bind, at
end

-- Until when a permit must exist for its job to be called now. A job of several
-- limits is not called ahead: it would keep the permits of one while it waits
-- for another's. Nor is one where nobody knows when permits come back, or where
-- few permits can be kept: there a job that takes its permit late makes the next
-- one's later.
local function horizon(meters)
  local m = meters[1]
  if #meters > 1 or not m.known or (m.capacity - m.cost) * m.period_us < ahead_us * m.n then return now_us end
  return now_us + ahead_us
end

-- Keeps a permit of each meter for the job. Where a limit is gone or too small
-- the job is called to learn it.
local grants = { 'ZADD', hg('grants') }
local function call_back(job, r, meters, at)
  local _, line = first(r.lane)
  line.called = line.called + 1
  tell(job, r, meters and at or now_us)
  if not meters then
    to_limbo(job, r)
    return
  end
  grants[#grants + 1] = int(at + grant_us)
  grants[#grants + 1] = job
  for i = 1, #meters do
    local m = meters[i]
    m.reserved = m.reserved + m.cost
    m.promised = (m.promised or 0) + m.cost
  end
end

local function keep_promises()
  if #grants > 2 then call(unpack(grants)) end
  for lane, line in pairs(lines) do
    if line.called > 0 then call('ZREM', hg('lane', lane), unpack(line, 1, line.called)) end
  end
  for id, m in pairs(known) do
    if m and m.promised then call('HINCRBY', hg('reserved'), id, int(m.promised)) end
  end
end

-- Lets the lanes that wait on a meter have their turns, one job a turn.
local function serve(id)
  local queue = hg('q', id)
  local lanes = call('ZCARD', queue)
  local lane, looked, job, r, meters, bind, at
  while steps > 0 do
    steps = steps - 1
    if lanes ~= 1 or not lane then lane = call('ZRANGE', queue, 0, 0)[1] end
    if not lane then
      call('ZREM', hg('due'), id)
      return
    end
    if looked ~= lane then job, r, meters, bind, at = look(lane, id) end
    local turn = job and (not meters or at <= horizon(meters))
    if job and not turn and bind.id == id then
      call('ZADD', hg('due'), int(at), id)
      return
    end
    if turn then
      call_back(job, r, meters, at)
      job, r, meters, bind, at = look(lane, id)
    end
    looked = lane
    if not job then
      stop_waiting(lane)
      lane, lanes = nil, lanes - 1
    elseif meters and bind.id ~= id then
      call('ZREM', queue, lane)
      wait_on(lane, bind.id)
      due(bind.id, at)
      lane, lanes = nil, lanes - 1
    elseif turn and lanes > 1 then
      wait_on(lane, id)
    end
  end
end

local ids = call('ZRANGEBYSCORE', hg('due'), '-inf', int(now_us), 'LIMIT', 0, 100)
for i = 1, #ids do
  if steps > 0 then serve(ids[i]) end
end

keep_promises()
out[2], out[3] = next_due_us(), table.concat(stale, ' ')
return out
