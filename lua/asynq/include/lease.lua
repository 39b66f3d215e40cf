-- Reports whether the lease that a job has is the one that is meant: the lease of the dequeue
-- of that name, or a lease that had ended by that unix second. If neither is given, any lease
-- is meant. The hash of an active job has the name of its dequeue in `pending_since`. If the
-- hash was lost, nothing says that another dequeue has the job.
local function is_lease(hash, lease, id, name, ended)
  if name == '' and ended == '' then return true end
  if name ~= '' then
    local by = redis.pcall('HGET', hash, 'pending_since')
    if by == name or type(by) == 'table' or not by and redis.call('EXISTS', hash) == 0 then return true end
  end
  local ends = ended ~= '' and redis.call('ZSCORE', lease, id)
  return ends and tonumber(ends) <= tonumber(ended) or false
end
