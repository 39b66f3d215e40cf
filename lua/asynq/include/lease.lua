-- Reports whether a job has the lease that is meant: the lease of the dequeue of that name, or
-- a lease that had ended by that unix second. If neither is given, any lease is meant. The hash
-- of an active job has the name of its dequeue in `pending_since`. If the hash was lost,
-- nothing says that another dequeue has the job. The second result is whether the hash says by
-- name that the job is active under that lease. Then it is, even if Redis has lost it elsewhere.
local function is_lease(hash, lease, id, name, ended)
  if name == '' and ended == '' then return true, false end
  if name ~= '' then
    local kept = redis.pcall('HMGET', hash, 'pending_since', 'state')
    if kept[1] == name and kept[2] == 'active' then return true, true end
    if kept.err or not kept[1] and redis.call('EXISTS', hash) == 0 then return true, false end
  end
  local ends = ended ~= '' and redis.call('ZSCORE', lease, id)
  return ends and tonumber(ends) <= tonumber(ended) or false, false
end
