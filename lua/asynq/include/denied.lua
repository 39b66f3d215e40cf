-- Reports whether a job waits in asynq's retry set because it was denied. The
-- field `denied` of its hash is ours. It says until when it was put back, or that
-- it was called since; one that failed since has another score.
local CALLED = 'called'
local function is_denied(retry, id, at)
  return at and at ~= '' and at ~= CALLED and tonumber(redis.call('ZSCORE', retry, id) or -1) == tonumber(at)
end
