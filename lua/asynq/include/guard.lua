-- @include lease

-- Runs before a script of asynq's that ends the lease of an active job. If the job does not have
-- the expected lease, the call returns the error of asynq's script for a job that is not active.
-- asynq's script would fail if Redis has lost the job's entry in the active list or in the leases.
-- So this code adds both entries. A duplicate in the active list is harmless, because asynq's
-- script removes all copies. The last three keys of the call are the active list, the leases and
-- the job's hash. The first argument is the job's ID. The last two arguments are `name` and `ended`
-- of the expected lease: see lease.lua.
do
  local k, n = #KEYS, #ARGV
  local matches, is_active = is_lease(KEYS[k], KEYS[k - 1], ARGV[1], ARGV[n - 1], ARGV[n])
  if not matches then return redis.error_reply('NOT FOUND') end
  if is_active then
    redis.call('LPUSH', KEYS[k - 2], ARGV[1])
    redis.call('ZADD', KEYS[k - 1], 'NX', 0, ARGV[1])
  end
end
