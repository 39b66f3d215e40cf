-- Reports whether a job has the expected lease: the lease of the dequeue with that name, or a
-- lease that had ended at that Unix second. If both are empty, any lease matches. The field
-- `pending_since` of an active job's hash has the name of its dequeue. If the hash was lost, the
-- lease matches. The second result reports whether the hash has that name and the state active.
-- Then the job is active, even if Redis has lost its entry in the active list or the leases.
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
