-- Reports whether a job waits in asynq's retry set because it was denied. The
-- field `denied` of its hash is ours and says until when it was put back; one
-- that failed since has another score.
local function is_denied(retry, id, at)
  return at and at ~= '' and tonumber(redis.call('ZSCORE', retry, id) or -1) == tonumber(at)
end
