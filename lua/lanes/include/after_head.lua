-- @include jobs

-- When a job would run that stands behind a dearer one, for which there is too
-- little though there would be enough for the job itself.
local function after_head(job, expected)
  local head = read_job(job.queue, call('ZRANGE', job.waiting, 0, 0)[1])
  for i = 1, head and head.lane == job.lane and #job.meters or 0 do
    local m = job.meters[i]
    expected = math.max(expected, m.ready_at(m.reserved + head.cost[i] + m.cost))
  end
  return expected
end
