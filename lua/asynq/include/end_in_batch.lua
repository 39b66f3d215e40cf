-- Notes how a job of a batch has ended: 1 completed, 2 archived, 3 deleted. The batch counts each job
-- once. An archived job that was run again can still complete. An error of the batch's key does not
-- concern the job.
local function end_in_batch(batch, id, state)
  local before = tonumber(redis.pcall('ZSCORE', batch, id) or nil)
  if before == 0 or before == 2 and state == '1' then redis.call('ZADD', batch, 'XX', state, id) end
end
