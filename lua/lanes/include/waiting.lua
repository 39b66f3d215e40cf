-- @include expect
-- @include latest
-- @include reserved
-- @include count
-- @include next_ticket
-- @include repeated

-- Returns the first contended one of some meters, or nil.
local function contended(ids)
  local marks = call('HMGET', hg('contended'), unpack(ids))
  for i = 1, #marks do
    if marks[i] then return ids[i] end
  end
end

-- Puts a job in its lane, and announces the lane with its first job.
local function join(job, ticket, meter)
  local before = job.before or call('ZCARD', job.waiting)
  call('ZADD', job.waiting, ticket, job.id)
  for i = 1, #job.meters do
    local m = job.meters[i]
    m.before = math.max(0, count(hg('demand'), m.id, m.cost) - m.cost)
  end
  if before > 0 then return end
  -- @include announce
  announce(job.lane, meter)
end

-- Returns what the other jobs of a lane cost on average of each meter. That is known of a lane that
--   is alone there.
local function average_costs(job, place)
  local others = place == job.before and place or call('ZCARD', job.waiting) - 1
  local average = {}
  for i = 1, #job.meters do
    local m = job.meters[i]
    average[i] = m.before ~= others * m.cost and is_alone(m) and m.before / others or m.cost
  end
  return average
end

-- Replies to a waiting job with so many of its lane before it. It is put back in case that it is
-- not promoted: for a little longer than it is told to wait, because coming early would cost it a
-- second denial. If that is unknown, for a minute, and then for as long as it has waited.
local function told_to_wait(job, place, joins)
  local last, expected, known = expect(job.meters, place, place > 0 and average_costs(job, place), joins, job.mark)
  if place > 0 and expected <= now_us then -- it stands behind a more expensive job, for which there is too little
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
  local answer = reply(DENIED, last, known and expected or now_us + back_us, back_us)
  answer[9] = known and 1 or 0
  return answer
end

-- Redis keeps a hash of values up to 64 bytes as a list, until it has 512 fields, and each lookup
-- would walk along half of it. So records are longer.
local LONG = 65

-- Returns a waiting job's record without its ticket. ends is its wait deadline.
local function without_ticket(job, ends, denials)
  local expiry = '\n' .. int(job.since_us) .. '\n' .. job.grant .. '\n' .. (ends < math.huge and '1 ' or '0 ')
  local rest = denials .. '\n' .. job.costs .. '\n' .. job.lane
  return expiry .. string.rep(' ', LONG - #expiry - #rest) .. rest
end

-- Has a denied job wait in its lane, or join it, and returns the reply; r is its record, bind the
-- meter that it waits longest for. It is too late only when its wait deadline is over: until then
-- jobs before it may leave, and running jobs may give permits back.
local function wait(job, r, joins, bind)
  local ends = latest(job.since_us, job.max_wait_us, job.useful_us)
  if ends <= now_us then return reply(EXPIRED, bind or (binding(job.meters)), now_us) end
  local ticket = r and r.ticket or job.ticket or next_ticket(job.lane) + job.head_start * STEP
  local text = int(ticket)
  local place = not r and not job.ticket and job.head_start == 0 and job.before or call('ZCOUNT', job.waiting, '-inf', '(' .. text)
  if joins then
    join(job, text, job.mark or bind and bind.id)
  else
    load_before(job.meters, true)
  end
  if ends < math.huge then
    call('ZADD', hg('deadlines'), int(ends), job.name)
    if call('ZRANK', hg('deadlines'), job.name) == 0 then call('PUBLISH', hg('wake'), 'deadline') end
  end
  call('HSET', hg('jobs'), job.name, text .. without_ticket(job, ends, r and int(r.denials + 1) or '1'))
  local answer = told_to_wait(job, place, not r)
  answer.wait = wait_of(text, int(job.since_us))
  return answer
end

-- Replies to a job that does not wait by this call: its wait is over, or it is another call's.
local function passed_over(meters)
  local answer = reply(DENIED, binding(meters))
  answer[8], answer[9] = answer[4] - now_us, 1
  return answer
end
