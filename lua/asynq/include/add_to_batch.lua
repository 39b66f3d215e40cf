-- Runs asynq_script, a script of asynq's that enqueues a job, for a job of a batch. The last four
-- arguments are the batch's key in the queue, the job's ID, its state in the batch (0, or 4 for the
-- batch's follow-up), and the seconds until the batch is forgotten. A job that has been in the batch
-- does not run again: the reply is then asynq's for an ID that exists.
local n = #ARGV
local batch, id, state, kept = ARGV[n - 3], ARGV[n - 2], ARGV[n - 1], ARGV[n]
if redis.call('ZSCORE', batch, id) then return 0 end
local reply = asynq_script()
if reply == 1 then
  redis.call('ZADD', batch, state, id)
  redis.call('EXPIRE', batch, kept)
end
return reply
