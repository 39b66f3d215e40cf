-- Reports whether a job has the expected lease. This is the lease of the dequeue `name`, or a lease
-- that ended at or before the Unix second `ended`. If `name` is '' and `ended` is '0', any lease
-- matches. If the job's hash is missing or of a wrong type, any name matches. The second result is
-- true if the job's hash says that the dequeue `name` took the job and the job is active. The third
-- result is then the key of the job's Unique lock, or false if the job has none.
local function is_lease(hash, lease, id, name, ended)
  if name == '' and ended == '0' then return true, false end
  if name ~= '' then
    local kept = redis.pcall('HMGET', hash, 'pending_since', 'state', 'unique_key')
    if kept[1] == name and kept[2] == 'active' then return true, true, kept[3] end
    if kept.err or not kept[1] and redis.call('EXISTS', hash) == 0 then return true, false end
  end
  local ends = ended ~= '0' and redis.call('ZSCORE', lease, id)
  return ends and tonumber(ends) <= tonumber(ended) or false, false
end
