-- @include lease

-- Stands in front of a script of asynq's that ends the lease of an active job. If that lease is
-- over, it answers as asynq's script does for a job that is not active. A job that has the
-- lease is active also if Redis has lost one of its entries: asynq's script, which gives up
-- if one is missing, finds both, and removes an entry that is there twice. The keys of the
-- active list, the leases and the job's hash follow the script's own keys; the name and the end of the lease that is
-- meant follow its own arguments. The first argument is the job's ID.
do
  local k, n = #KEYS, #ARGV
  local is, named = is_lease(KEYS[k], KEYS[k - 1], ARGV[1], ARGV[n - 1], ARGV[n])
  if not is then return redis.error_reply('NOT FOUND') end
  if named then
    redis.call('LPUSH', KEYS[k - 2], ARGV[1])
    redis.call('ZADD', KEYS[k - 1], 'NX', 0, ARGV[1])
  end
end
