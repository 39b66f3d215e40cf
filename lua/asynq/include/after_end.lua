-- @include end_in_batch

-- Runs asynq_script, a script of asynq's that ends an active job of a batch, and notes in the batch how
-- the job has ended. The first argument is the job's ID. The last four are the batch's key in the
-- queue, the state for end_in_batch, and two arguments of guard.lua.
local reply, n = asynq_script(), #ARGV
if type(reply) ~= 'table' or not reply.err then end_in_batch(ARGV[n - 3], ARGV[1], ARGV[n - 2]) end
return reply
