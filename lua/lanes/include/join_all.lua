-- @include waiting

-- Appends new jobs to the end of the lane in which `job` waits, and returns a reply for each. The
-- new jobs have the queue, needs and wait deadline of `job`. The result is the same as if each of
-- them had joined the lane by itself.
local function join_all(job, ids)
  local n, deadline, replies = #ids, wait_deadline(job.since_us, job.max_wait_us, job.useful_us), {}
  local last_ticket, record = next_ticket(job.lane, n), without_ticket(job, deadline, '1')
  local tickets, records, deadlines, deadline_text = {}, {}, {}, deadline < math.huge and int(deadline)
  job.mark = nil
  for i = 1, n do
    local ticket, name = int(last_ticket - (n - i) * STEP), job.queue .. '\n' .. ids[i]
    tickets[2 * i - 1], tickets[2 * i] = ticket, ids[i]
    records[2 * i - 1], records[2 * i] = name, ticket .. record
    deadlines[2 * i - 1], deadlines[2 * i] = deadline_text, name
    job.before = job.before + 1
    for k = 1, #job.meters do job.meters[k].before = job.meters[k].before + job.meters[k].cost end
    replies[i] = denial(job, job.before, true)
    replies[i].wait = wait_id(ticket, int(job.since_us))
  end
  call('ZADD', job.waiting, unpack(tickets))
  call('HSET', hg('jobs'), unpack(records))
  for k = 1, #job.meters do count(hg('demand'), job.meters[k].id, n * job.meters[k].cost) end
  if deadline_text then call('ZADD', hg('deadlines'), unpack(deadlines)) end
  return replies
end
