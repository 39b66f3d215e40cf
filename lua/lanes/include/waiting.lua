-- @include estimate
-- @include expiry
-- @include wait_deadline
-- @include reserved
-- @include count
-- @include wake_leader
-- @include next_ticket
-- @include cached_replies

-- Returns the ID of the first of the given meters that is contended, or nil if none is.
local function first_contended(ids)
  local marks = call('HMGET', hg('contended'), unpack(ids))
  for i = 1, #marks do
    if marks[i] then return ids[i] end
  end
end

-- Adds a job to its lane, and its costs to the demand of its meters. Sets m.before to the demand
-- without the job's cost. If the lane had no waiting job, registers the lane and marks `meter`.
local function join_lane(job, ticket, meter)
  local before = job.before or call('ZCARD', job.waiting)
  call('ZADD', job.waiting, ticket, job.id)
  for i = 1, #job.meters do
    local m = job.meters[i]
    m.before = math.max(0, count(hg('demand'), m.id, m.cost) - m.cost)
  end
  if before > 0 then return end
  -- @include register
  register_lane(job.lane, meter)
end

-- Returns for each meter the average cost of the lane's other waiting jobs. If other lanes share a
-- meter, this average is unknown, and the job's own cost is used for the meter.
local function average_costs(job, ahead)
  local others = ahead == job.before and ahead or call('ZCARD', job.waiting) - 1
  local average = {}
  for i = 1, #job.meters do
    local m = job.meters[i]
    average[i] = m.before ~= others * m.cost and is_alone(m) and m.before / others or m.cost
  end
  return average
end

-- Returns the denial of a waiting job that has `ahead` jobs of its lane ahead of it. The caller
-- puts the job back for a little longer than the expected wait, because a call that is too early
-- would be denied again. If the expected wait is unknown, the job is put back for as long as it has
-- waited so far, but at least a minute and at most an hour.
local function denial(job, ahead, is_new)
  local deciding, expected, known = estimate_start(job.meters, ahead, ahead > 0 and average_costs(job, ahead), is_new, job.mark)
  if ahead > 0 and expected <= now_us then -- the lane's first job needs more permits than the estimate assumes
    -- @include jobs
    local head = read_job(job.queue, call('ZRANGE', job.waiting, 0, 0)[1])
    for i = 1, head and head.lane == job.lane and #job.meters or 0 do
      local m = job.meters[i]
      expected = math.max(expected, m.ready_at(m.reserved + head.cost[i] + m.cost))
    end
  end
  local back_us = expected - now_us
  if known then
    back_us = back_us + floor(back_us / 10) + 5000000
  else
    back_us = math.min(math.max(now_us - job.since_us, 60000000), 3600000000)
  end
  local result = reply(DENIED, deciding, known and expected or now_us + back_us, back_us)
  result[FLAG] = known and 1 or 0
  return result
end

-- Redis stores a hash of up to 512 fields as a list while no value is longer than 64 bytes, and a
-- lookup reads half of the list on average. Records are padded to LONG bytes to avoid the list.
local LONG = 65

-- Time for which Redis remembers that a lane waits for a limit that does not exist.
local MISSING_MS = 86400000

-- Returns a waiting job's record without the ticket, which is the first line of the record.
local function without_ticket(job, deadline, denials)
  local expiry = '\n' .. int(job.since_us) .. '\n' .. job.grant_text .. '\n' .. (deadline < math.huge and HAS_DEADLINE or NO_DEADLINE) .. ' '
  local rest = denials .. '\n' .. job.costs .. '\n' .. job.lane
  return expiry .. string.rep(' ', LONG - #expiry - #rest) .. rest
end

-- Records that a lane waits for the limits of its missing meters. Until these limits are defined,
-- the lane gets no turn.
local function note_missing(job)
  for i = 1, #job.meters do
    local m = job.meters[i]
    if m.shown_capacity then
      call('HSET', hg('missing', m.name), job.lane, int(now_us))
      call('PEXPIRE', hg('missing', m.name), MISSING_MS)
    end
  end
end

-- Records that a job is denied and waits in its lane, and returns the denial. `r` is the job's
-- record, or nil. `is_new` says whether the job must still join the lane. If the wait deadline has
-- passed, nothing is recorded and the reply is EXPIRED. An expected wait beyond the deadline is no
-- reason to refuse the job, because other jobs may leave or give permits back.
local function wait_in_lane(job, r, is_new, bottleneck)
  local deadline = wait_deadline(job.since_us, job.max_wait_us, job.useful_us)
  if deadline <= now_us then return reply(EXPIRED, bottleneck or (find_bottleneck(job.meters)), now_us) end
  local ticket = r and r.ticket or job.ticket or next_ticket(job.lane) + job.head_start * STEP
  local text = int(ticket)
  local ahead = not r and not job.ticket and job.head_start == 0 and job.before or call('ZCOUNT', job.waiting, '-inf', '(' .. text)
  if is_new then
    join_lane(job, text, job.mark or bottleneck and bottleneck.id)
  else
    load_before(job.meters, true)
  end
  note_missing(job)
  if deadline < math.huge then
    call('ZADD', hg('deadlines'), int(deadline), job.name)
    if call('ZRANK', hg('deadlines'), job.name) == 0 then wake_leader('deadline') end
  end
  call('HSET', hg('jobs'), job.name, text .. without_ticket(job, deadline, r and int(r.denials + 1) or '1'))
  local result = denial(job, ahead, not r)
  result.wait = wait_id(text, int(job.since_us))
  return result
end

-- Returns the denial of a job that this call does not put into a lane. The reason is that the wait
-- which the first attempt began is over, or that another call has begun a wait of the job.
local function denial_without_wait(meters)
  local result = reply(DENIED, find_bottleneck(meters))
  result[TIME], result[FLAG] = result[READY_AT] - now_us, 1
  return result
end
