-- @include lease

-- Stands in front of a script of asynq's that ends the lease of an active job. If that lease is
-- over, it answers as asynq's script does for a job that is not active. The keys of the leases
-- and of the job's hash follow the script's own keys; the name and the end of the lease that is
-- meant follow its own arguments, of which the first is the job's ID.
do
  local k, n = #KEYS, #ARGV
  if not is_lease(KEYS[k], KEYS[k - 1], ARGV[1], ARGV[n - 1], ARGV[n]) then return redis.error_reply('NOT FOUND') end
end
