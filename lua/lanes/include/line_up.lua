-- @include waiting

-- Has alike newcomers wait behind one that has just joined its lane: as if each had asked alone,
-- but in one step. Returns their replies.
local function line_up(job, ids)
  local n, ends, answers = #ids, latest(job.since_us, job.max_wait_us, job.useful_us), {}
  local last, record = next_ticket(job.lane, n), without_ticket(job, ends, '1')
  local tickets, records, expiry, until_us = {}, {}, {}, ends < math.huge and int(ends)
  job.mark = nil
  for i = 1, n do
    local ticket, name = int(last - (n - i) * STEP), job.queue .. '\n' .. ids[i]
    tickets[2 * i - 1], tickets[2 * i] = ticket, ids[i]
    records[2 * i - 1], records[2 * i] = name, ticket .. record
    expiry[2 * i - 1], expiry[2 * i] = until_us, name
    job.before = job.before + 1
    for k = 1, #job.meters do job.meters[k].before = job.meters[k].before + job.meters[k].cost end
    answers[i] = told_to_wait(job, job.before, true)
    answers[i].wait = wait_of(ticket, int(job.since_us))
  end
  call('ZADD', job.waiting, unpack(tickets))
  call('HSET', hg('jobs'), unpack(records))
  for k = 1, #job.meters do count(hg('demand'), job.meters[k].id, n * job.meters[k].cost) end
  if until_us then call('ZADD', hg('deadlines'), unpack(expiry)) end
  return answers
end
