-- Reports whether a job has the expected lease: that of the dequeue `name`, or one that had ended
-- at the Unix second `ended`. If both are '', any lease matches. If the job's hash is missing or of
-- a wrong type, any name matches. The second result reports whether the hash shows that the job is
-- active under this lease, even if Redis has lost its entry in the active list or the leases: the
-- field `pending_since` of an active job holds the name of its dequeue.
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
